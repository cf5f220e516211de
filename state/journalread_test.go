package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// writeJournal puts a text where the journal belongs.
func writeJournal(t testing.TB, w *Workspace, text string) {
	t.Helper()
	noError(t, os.MkdirAll(filepath.Dir(journalFileOf(w)), 0o700))
	noError(t, os.WriteFile(journalFileOf(w), []byte(text), 0o600))
}

func appendToJournal(t testing.TB, w *Workspace, text string) {
	t.Helper()
	f, err := os.OpenFile(journalFileOf(w), os.O_APPEND|os.O_WRONLY, 0)
	noError(t, err)
	_, err = f.WriteString(text)
	noError(t, err, f.Close())
}

func textLine(s string) string {
	return fmt.Sprintf(`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":%q}`, s)
}

func TestReadJournalLines(t *testing.T) {
	a, b := textLine("a"), textLine("b")
	tests := []struct{ name, text, want string }{
		{"empty", "", ""},
		{"two", a + "\n" + b + "\n", "text:a text:b"},
		{"torn tail is not seen", a + "\n" + b, "text:a"},
		{"only a torn line", a, ""},
		{"no JSON", a + "\ngarbage\n" + b + "\n", "text:a text:b"},
		{"empty lines", "\n\n" + a + "\n\n" + b + "\n", "text:a text:b"},
		{"NULs", "\x00\x00\x00\n" + a + "\n", "text:a"},
		{"torn text with a whole one on its line", a[:40] + a + "\n" + b + "\n", "text:b"},
		{"unknown kinds", `{"kind":"metric","n":1}` + "\n" + `{}` + "\n" + a + "\n", "text:a"},
		{"other JSON values", "1\nnull\n[]\n\"x\"\n" + a + "\n", "text:a"},
		{"wrong types", `{"kind":"start","pid":"x"}` + "\n" + `{"kind":7}` + "\n" + a + "\n", "text:a"},
		{"white space and another order of members", `{ "text": "a", "stream":"stdout", "kind": "text" }` + "\n", "text:a"},
		{"unknown members", `{"kind":"text","at":"x","path":["y"],"text":"a","more":{"a":1,"a":2}}` + "\n", "text:a"},
		{"escapes of another writer", `{"kind":"text","text":"\ud83c\udf88\/\u00e9"}` + "\n", "text:🎈/é"},
		{"a lone surrogate", `{"kind":"text","text":"\ud83cx"}` + "\n", "text:\ufffdx"},
		{"CRLF", a + "\r\n", "text:a"},
		{"no version", `{"kind":"start"}` + "\n", "start"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &Workspace{dir: t.TempDir()}
			writeJournal(t, w, tt.text)
			if got := kinds(readEntries(t, w)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReadJournalErrors(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	if err := w.ReadJournal(journalRun, nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), journalRun) {
		t.Errorf("missing: got %v, want ErrNotExist that names the run", err)
	}
	if entries, _ := os.ReadDir(w.dir); len(entries) != 0 {
		t.Errorf("reading created %v", entries)
	}
	writeJournal(t, w, textLine("a")+"\n"+textLine("b")+"\n")
	stop := errors.New("stop")
	n := 0
	if err := w.ReadJournal(journalRun, func(Entry) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("error of fn: got %v after %d records, want it unchanged after one", err, n)
	}
	writeJournal(t, w, `{"kind":"start","version":2}`+"\n")
	if err := w.ReadJournal(journalRun, nil); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2: got %v, want ErrVersion", err)
	}
}

// The texts a callback keeps stay what they were.
func TestReadJournalTextsMayBeKept(t *testing.T) {
	w, j := newJournal(t)
	const n = 2000
	for i := range n {
		noError(t, j.Text(journalAt, "s", Stdout, bytes.Repeat([]byte{byte('a' + i%26)}, 500), false))
	}
	for i, e := range readEntries(t, w)[1:] {
		if want := bytes.Repeat([]byte{byte('a' + i%26)}, 500); !bytes.Equal(e.Text, want) {
			t.Fatalf("record %d: got %q", i, e.Text)
		}
	}
}

// Lines beyond any record cost only themselves, and no memory to speak of.
func TestReadJournalSkipsEndlessLines(t *testing.T) {
	const limit = 1 << 20
	for _, size := range []int{limit - 100, limit + 1, limit + readRoom, 20 * limit} {
		w := &Workspace{dir: t.TempDir()}
		writeJournal(t, w, textLine("a")+"\nx"+strings.Repeat(" ", size)+textLine("not seen")+"\n"+textLine("b")+"\n")
		r, err := w.openJournalReader(journalRun)
		noError(t, err)
		r.limit = limit
		var got []Entry
		_, err = r.deliver(context.Background(), func(e Entry) error { got = append(got, e); return nil })
		r.file.Close()
		noError(t, err)
		if kinds(got) != "text:a text:b" {
			t.Errorf("a line of %d bytes: got %q, want both records around it", size, kinds(got))
		}
		if cap(r.buf) > 4*limit {
			t.Errorf("a line of %d bytes: the buffer grew to %d bytes", size, cap(r.buf))
		}
	}
}

func TestReadJournalMemory(t *testing.T) {
	w, j := newJournal(t)
	data := benchOutput(100 << 10)
	for range 60 {
		noError(t, j.Text(journalAt, "s", Stdout, data, false))
	}
	r, err := w.openJournalReader(journalRun)
	noError(t, err)
	defer r.file.Close()
	_, err = r.deliver(context.Background(), func(Entry) error { return nil })
	noError(t, err)
	if cap(r.buf) > 1<<20 {
		t.Errorf("reading 6 MB in records of 100 KB took a buffer of %d bytes", cap(r.buf))
	}
	runtime.KeepAlive(r)
}

// follow runs FollowJournal in a bubble of fake time.
type follow struct {
	stop atomic.Bool

	mu    sync.Mutex
	texts []string
	asked int
	err   error
	ended bool
}

func startFollow(ctx context.Context, w *Workspace) *follow {
	f := &follow{}
	go func() {
		err := w.FollowJournal(ctx, journalRun, func(e Entry) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.texts = append(f.texts, kinds([]Entry{e}))
			return nil
		}, func() (bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.asked++
			return f.stop.Load(), nil
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended, f.err = true, err
	}()
	return f
}

// after is what was seen within 100 ms from now.
func (f *follow) after() string {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := strings.Join(f.texts, " ")
	f.texts = nil
	return got
}

func (f *follow) want(t *testing.T, want string) {
	t.Helper()
	if got := f.after(); got != want {
		t.Errorf("followed: got %q, want %q", got, want)
	}
}

func (f *follow) wantEnd(t *testing.T, part string) {
	t.Helper()
	f.after()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.ended:
		t.Errorf("still following, want an end")
	case part == "" && f.err != nil:
		t.Errorf("got %v, want no error", f.err)
	case part != "" && (f.err == nil || !strings.Contains(f.err.Error(), part)):
		t.Errorf("got %v, want an error with %q", f.err, part)
	}
}

func TestFollowJournal(t *testing.T) {
	tests := []struct {
		name string
		do   func(t *testing.T, w *Workspace, f *follow, cancel context.CancelFunc)
	}{
		{"new records, a torn line, garbage", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			appendToJournal(t, w, textLine("1")+"\n")
			f.want(t, "text:1")
			line := textLine("2")
			appendToJournal(t, w, line[:30])
			f.want(t, "")
			appendToJournal(t, w, line[30:])
			f.want(t, "")
			appendToJournal(t, w, "\n"+textLine("3")+"\n")
			f.want(t, "text:2 text:3")
			appendToJournal(t, w, "garbage\n{\"kind\":\"new\"}\n"+textLine("4")+"\n")
			f.want(t, "text:4")
			f.stop.Store(true)
			f.wantEnd(t, "")
		}},
		{"ctx ends", func(t *testing.T, w *Workspace, f *follow, cancel context.CancelFunc) {
			f.want(t, "text:0")
			cancel()
			f.wantEnd(t, context.Canceled.Error())
		}},
		{"cut short", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			noError(t, os.Truncate(journalFileOf(w), 10))
			f.wantEnd(t, "was cut short")
		}},
		{"emptied", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			noError(t, os.Truncate(journalFileOf(w), 0))
			f.wantEnd(t, "was cut short")
		}},
		{"deleted", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			noError(t, os.Remove(journalFileOf(w)))
			f.wantEnd(t, "was deleted")
		}},
		{"replaced", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			tmp := journalFileOf(w) + ".new"
			noError(t, os.WriteFile(tmp, []byte(textLine("9")+"\n"+textLine("9")+"\n"), 0o600), os.Rename(tmp, journalFileOf(w)))
			f.wantEnd(t, "was replaced")
		}},
		{"a version we do not know", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			appendToJournal(t, w, `{"kind":"start","version":9}`+"\n")
			f.wantEnd(t, "version 9")
		}},
		{"done is asked only when nothing new came", func(t *testing.T, w *Workspace, f *follow, _ context.CancelFunc) {
			f.want(t, "text:0")
			f.mu.Lock()
			asked := f.asked
			f.mu.Unlock()
			if asked == 0 || asked > 4 {
				t.Errorf("asked %d times in 100 ms, want once per look", asked)
			}
			f.stop.Store(true)
			f.wantEnd(t, "")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &Workspace{dir: t.TempDir()}
			writeJournal(t, w, textLine("0")+"\n")
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tt.do(t, w, startFollow(ctx, w), cancel)
			})
		})
	}
}

func TestFollowJournalThatIsNotThereYet(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		f := startFollow(t.Context(), w)
		f.want(t, "")
		if entries, _ := os.ReadDir(w.dir); len(entries) != 0 {
			t.Errorf("following created %v", entries)
		}
		writeJournal(t, w, textLine("1")+"\n")
		f.want(t, "text:1")
		f.stop.Store(true)
		f.wantEnd(t, "")
	})
	noError(t, os.Remove(journalFileOf(w)))
	synctest.Test(t, func(t *testing.T) { // never comes
		f := startFollow(t.Context(), w)
		f.want(t, "")
		f.stop.Store(true)
		f.wantEnd(t, "")
	})
}

// What was appended while done was asked is delivered before the end.
func TestFollowJournalDeliversWhatCameBeforeTheStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, there := range []bool{true, false} {
		w := &Workspace{dir: t.TempDir()}
		if there {
			writeJournal(t, w, textLine("0")+"\n")
		}
		var got []Entry
		err := w.FollowJournal(t.Context(), journalRun,
			func(e Entry) error { got = append(got, e); return nil },
			func() (bool, error) {
				if there {
					appendToJournal(t, w, textLine("last")+"\n")
				} else {
					writeJournal(t, w, textLine("last")+"\n")
				}
				return true, nil
			})
		if err != nil || len(got) == 0 || string(got[len(got)-1].Text) != "last" {
			t.Errorf("there %v: got %q, %v; want the last record", there, kinds(got), err)
		}
	}
}

func TestFollowJournalErrorsOfTheCaller(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	writeJournal(t, w, textLine("0")+"\n")
	want := errors.New("mine")
	if err := w.FollowJournal(t.Context(), journalRun, func(Entry) error { return want }, nil); err != want {
		t.Errorf("of fn: got %v, want %v", err, want)
	}
	keep := func(Entry) error { return nil }
	if err := w.FollowJournal(t.Context(), journalRun, keep, func() (bool, error) { return false, want }); err != want {
		t.Errorf("of done: got %v, want %v", err, want)
	}
	if err := w.FollowJournal(t.Context(), "..", keep, nil); err == nil {
		t.Error("run id ..: got no error")
	}
}

// A real writer and a real follower: every byte once, in order.
func TestFollowJournalWhileWritten(t *testing.T) {
	w, j := newJournal(t)
	const n = 2000
	written := make(chan error, 1)
	go func() {
		var err error
		for i := range n {
			err = errors.Join(err, j.Text(time.Now(), "s", Stdout, fmt.Appendf(nil, "%d\n", i), false))
		}
		written <- errors.Join(err, j.End(time.Now(), Complete, nil, nil))
	}()
	var got bytes.Buffer
	ended := false
	err := w.FollowJournal(t.Context(), journalRun, func(e Entry) error {
		got.Write(e.Text)
		ended = ended || e.Kind == "end"
		return nil
	}, func() (bool, error) { return ended, nil })
	noError(t, err, <-written)
	var want bytes.Buffer
	for i := range n {
		fmt.Fprintf(&want, "%d\n", i)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("got %d bytes, want %d", got.Len(), want.Len())
	}
}
