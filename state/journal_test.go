package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const journalRun = "rn-01jdtest"

var journalAt = time.Date(2026, 11, 30, 17, 29, 3, 123_999_999, time.FixedZone("", 3600))

const journalAtText = "2026-11-30T16:29:03.123Z"

func newJournal(t testing.TB) (*Workspace, *Journal) {
	t.Helper()
	w := &Workspace{dir: t.TempDir()}
	noError(t, os.Mkdir(filepath.Join(w.dir, "output"), 0o700)) // without the fsyncs of makeDir
	j, err := w.OpenJournal(journalRun, "backup", journalAt)
	noError(t, err)
	t.Cleanup(func() { j.Close() })
	return w, j
}

func journalFileOf(w *Workspace) string { return filepath.Join(w.dir, "output", journalRun+".jsonl") }

func journalLines(t testing.TB, w *Workspace) []string {
	t.Helper()
	b, err := os.ReadFile(journalFileOf(w))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

func readEntries(t testing.TB, w *Workspace) []Entry {
	t.Helper()
	var got []Entry
	if err := w.ReadJournal(journalRun, func(e Entry) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func kinds(entries []Entry) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(e.Kind)
		if e.Kind == "text" {
			b.WriteByte(':')
			b.Write(e.Text)
		}
	}
	return b.String()
}

// noError fails the test on the first error.
func noError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestJournalRecords(t *testing.T) {
	w, j := newJournal(t)
	me := Self()
	p := Process{PID: 12, BootID: "b-1", StartTicks: 345}
	noError(t,
		j.Spawning(journalAt, "dump", nil),
		j.Spawned(journalAt, "dump", p, "/sys/fs/cgroup/x"),
		j.Spawned(journalAt, "dump", Process{PID: 13}, ""),
		j.Text(journalAt, "dump", Stdout, []byte("a \"b\"\\\n\t\x00\u2028é\n"), false),
		j.Text(journalAt, "dump", Stderr, []byte("half"), true),
		j.Text(journalAt, "dump", Stderr, []byte{0xff, 'a'}, true),
		j.Text(journalAt, "dump", Stderr, nil, false),
		j.Text(journalAt, "no \"such\"\xff step", StepStream, []byte("x"), false),
		j.End(journalAt, Complete, jsontext.Value("{\n  \"a\": [1, \"\u2028\"]\n}"), nil),
		j.End(journalAt, Complete, nil, nil),
		j.End(journalAt, Failed, jsontext.Value("1"), &RunError{Name: "ExitError", Message: "exit 3\nsorry", Stack: "x"}),
	)
	want := []string{
		fmt.Sprintf(`{"kind":"start","version":1,"run":%q,"name":"backup","pid":%d,"at":%q,"startTicks":%d,"bootId":%q}`,
			journalRun, me.PID, journalAtText, me.StartTicks, me.BootID),
		`{"kind":"spawn","at":"AT","step":"dump"}`,
		`{"kind":"process","at":"AT","step":"dump","pid":12,"startTicks":345,"bootId":"b-1","cgroup":"/sys/fs/cgroup/x"}`,
		`{"kind":"process","at":"AT","step":"dump","pid":13}`,
		`{"kind":"text","at":"AT","step":"dump","stream":"stdout","text":"a \"b\"\\\n\t\u0000` + "\u2028é" + `\n"}`,
		`{"kind":"text","at":"AT","step":"dump","stream":"stderr","text":"half","partial":true}`,
		`{"kind":"text","at":"AT","step":"dump","stream":"stderr","base64":"/2E=","partial":true}`,
		`{"kind":"text","at":"AT","step":"no \"such\"` + "\uFFFD" + ` step","stream":"step","text":"x"}`,
		`{"kind":"end","at":"AT","status":"complete","result":{"a":[1,"` + "\u2028" + `"]}}`,
		`{"kind":"end","at":"AT","status":"complete","result":null}`,
		`{"kind":"end","at":"AT","status":"failed","error":{"name":"ExitError","message":"exit 3\nsorry"}}`,
		``,
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "AT\"", journalAtText+`"`)
	}
	if diff := cmp.Diff(want, journalLines(t, w)); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}

	at := journalAt.UTC().Truncate(time.Millisecond)
	text := func(step, stream, text string, partial bool) Entry {
		return Entry{Kind: "text", At: at, Step: step, Stream: stream, Text: []byte(text), Partial: partial}
	}
	wantEntries := []Entry{
		{Kind: "start", At: at, Run: journalRun, Name: "backup", Process: me},
		{Kind: "spawn", At: at, Step: "dump"},
		{Kind: "process", At: at, Step: "dump", Process: p, Cgroup: "/sys/fs/cgroup/x"},
		{Kind: "process", At: at, Step: "dump", Process: Process{PID: 13}},
		text("dump", Stdout, "a \"b\"\\\n\t\x00\u2028é\n", false),
		text("dump", Stderr, "half", true),
		text("dump", Stderr, "\xffa", true),
		text("no \"such\"\uFFFD step", StepStream, "x", false),
		{Kind: "end", At: at, Status: Complete, Result: jsontext.Value("{\"a\":[1,\"\u2028\"]}")},
		{Kind: "end", At: at, Status: Complete, Result: jsontext.Value("null")},
		{Kind: "end", At: at, Status: Failed, Error: &RunError{Name: "ExitError", Message: "exit 3\nsorry"}},
	}
	if diff := cmp.Diff(wantEntries, readEntries(t, w)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	info, err := os.Stat(journalFileOf(w))
	noError(t, err)
	if got, want := info.Mode(), fs.FileMode(0o600); got != want {
		t.Errorf("mode: got %v, want %v", got, want)
	}
}

// Every record is one write of whole lines, however many write at once.
func TestJournalOneWritePerRecord(t *testing.T) {
	_, j := newJournal(t)
	rec := &recordingFile{}
	j.file = rec
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if err := j.Text(journalAt, fmt.Sprint("step", i), Stdout, bytes.Repeat([]byte("x\n"), 100), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(rec.writes) != 8*20 {
		t.Errorf("got %d writes, want %d", len(rec.writes), 8*20)
	}
	for _, b := range rec.writes {
		if n := bytes.Count(b, []byte("\n")); n != 1 || b[len(b)-1] != '\n' || !jsontext.Value(b).IsValid() {
			t.Fatalf("a write that is not one record: %q", b)
		}
	}
}

// recordingFile keeps what is written, and fails as it is told.
type recordingFile struct {
	writes  [][]byte
	limit   int // bytes before the next write fails half-way; 0 for none
	syncErr error
	syncs   int
}

func (f *recordingFile) Write(b []byte) (int, error) {
	if f.limit > 0 && len(b) > f.limit {
		b = b[:f.limit]
		f.writes = append(f.writes, bytes.Clone(b))
		return len(b), unix.ENOSPC
	}
	f.writes = append(f.writes, bytes.Clone(b))
	return len(b), nil
}
func (f *recordingFile) Sync() error  { f.syncs++; return f.syncErr }
func (f *recordingFile) Close() error { return nil }

func TestJournalShortWriteCostsOneRecord(t *testing.T) {
	tests := []struct {
		name  string
		limit func(record int) int // how many bytes of the record fit
		want  string
	}{
		{"in the middle", func(n int) int { return n / 2 }, "start text:after end"},
		{"one byte", func(int) int { return 1 }, "start text:after end"},
		{"all but the line's end", func(n int) int { return n - 1 }, "start text:lost text:after end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, j := newJournal(t)
			noError(t, j.Text(journalAt, "s", Stdout, []byte("lost"), false))
			size := len(journalLines(t, w)[1]) + 1
			noError(t, os.Truncate(journalFileOf(w), int64(len(journalLines(t, w)[0])+1)))

			real := j.file
			j.file = &shortFile{journalFile: real, limit: tt.limit(size)}
			if err := j.Text(journalAt, "s", Stdout, []byte("lost"), false); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("got %v, want ENOSPC", err)
			}
			j.file = &shortFile{journalFile: real, limit: 0} // still full: nothing at all fits
			if err := j.Text(journalAt, "s", Stdout, []byte("lost too"), false); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("got %v, want ENOSPC", err)
			}
			j.file = real
			noError(t, j.Text(journalAt, "s", Stdout, []byte("after"), false), j.End(journalAt, Complete, nil, nil))
			if got := kinds(readEntries(t, w)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	t.Run("only the end of a torn line fits", func(t *testing.T) {
		w, j := newJournal(t)
		real := j.file
		j.file = &shortFile{journalFile: real, limit: 5}
		if err := j.Text(journalAt, "s", Stdout, []byte("lost"), false); err == nil {
			t.Fatal("no error")
		}
		j.file = &shortFile{journalFile: real, limit: 1}
		if err := j.Text(journalAt, "s", Stdout, []byte("lost"), false); err == nil {
			t.Fatal("no error")
		}
		j.file = real
		noError(t, j.Text(journalAt, "s", Stdout, []byte("after"), false))
		if got, want := kinds(readEntries(t, w)), "start text:after"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := journalLines(t, w); len(got) != 4 || got[1] != `{"kin` || got[3] != "" {
			t.Errorf("lines: got %q, want the torn one ended once", got)
		}
	})
}

// shortFile writes limit bytes of every record, then fails like a full disk.
type shortFile struct {
	journalFile
	limit int
}

func (f *shortFile) Write(b []byte) (int, error) {
	n, err := f.journalFile.Write(b[:f.limit])
	return n, errors.Join(err, unix.ENOSPC)
}

func TestJournalFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	w, j := newJournal(t)
	real := j.file
	j.file = f
	for range 2 {
		if err := j.Text(journalAt, "s", Stdout, []byte("x"), false); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), journalRun) {
			t.Errorf("got %v, want ENOSPC that names the run", err)
		}
	}
	f.Close()
	j.file = real
	noError(t, j.End(journalAt, Complete, nil, nil))
	if got, want := kinds(readEntries(t, w)), "start end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestJournalContinued(t *testing.T) {
	tests := []struct {
		name string
		tail string
		want string
	}{
		{"whole", "", "start start"},
		{"torn record", `{"kind":"text","at":"20`, "start start"},
		{"a record that lacks only its end", `{"kind":"text","step":"s","stream":"stdout","text":"x"}`, "start text:x start"},
		{"NULs after a power cut", strings.Repeat("\x00", 4096), "start start"},
		{"ended garbage", "garbage\n", "start start"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, j := newJournal(t)
			noError(t, j.Close())
			f, err := os.OpenFile(journalFileOf(w), os.O_APPEND|os.O_WRONLY, 0)
			noError(t, err)
			_, err = f.WriteString(tt.tail)
			noError(t, err, f.Close())

			j, err = w.OpenJournal(journalRun, "backup", journalAt)
			noError(t, err)
			noError(t, j.Close())
			if got := kinds(readEntries(t, w)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("empty file", func(t *testing.T) {
		w := &Workspace{dir: t.TempDir()}
		noError(t, os.Mkdir(filepath.Join(w.dir, "output"), 0o700), os.WriteFile(journalFileOf(w), nil, 0o600))
		j, err := w.OpenJournal(journalRun, "backup", journalAt)
		noError(t, err)
		noError(t, j.Close())
		if got := journalLines(t, w); len(got) != 2 {
			t.Errorf("got %q, want one line", got)
		}
	})
}

func TestJournalAfterClose(t *testing.T) {
	_, j := newJournal(t)
	noError(t, j.Close())
	errs := map[string]error{
		"Text":     j.Text(journalAt, "s", Stdout, []byte("x"), false),
		"Spawning": j.Spawning(journalAt, "s", nil),
		"Spawned":  j.Spawned(journalAt, "s", Self(), ""),
		"End":      j.End(journalAt, Complete, nil, nil),
		"Sync":     j.Sync(),
		"Close":    j.Close(),
	}
	for name, err := range errs {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: got %v, want it closed", name, err)
		}
	}
	noError(t, j.Remove())
}

func TestJournalEndRefusesWhatIsNoJSON(t *testing.T) {
	w, j := newJournal(t)
	for _, result := range []string{"{", "1 2", "\"\xff\"", "\n"} {
		if err := j.End(journalAt, Complete, jsontext.Value(result), nil); err == nil {
			t.Errorf("result %q: got no error", result)
		}
	}
	if got, want := kinds(readEntries(t, w)), "start"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestJournalSync(t *testing.T) {
	_, j := newJournal(t)
	rec := &recordingFile{}
	dirs := 0
	j.file, j.syncDir = rec, func() error { dirs++; return nil }
	noError(t, j.Sync(), j.Sync())
	if rec.syncs != 2 || dirs != 1 {
		t.Errorf("got %d syncs of the file and %d of the directory, want 2 and 1", rec.syncs, dirs)
	}
}

// After a failed fsync the kernel forgets what it could not write: nothing may pass
// for durable afterwards.
func TestJournalFailedSyncIsFinal(t *testing.T) {
	for _, what := range []string{"file", "directory"} {
		t.Run(what, func(t *testing.T) {
			_, j := newJournal(t)
			rec := &recordingFile{}
			j.file, j.syncDir = rec, func() error { return nil }
			if what == "file" {
				rec.syncErr = unix.EIO
			} else {
				j.syncDir = func() error { return unix.EIO }
			}
			if err := j.Sync(); !errors.Is(err, unix.EIO) {
				t.Errorf("sync: got %v, want EIO", err)
			}
			rec.syncErr, j.syncDir = nil, func() error { return nil }
			for name, err := range map[string]error{
				"sync": j.Sync(), "text": j.Text(journalAt, "s", Stdout, []byte("x"), false), "end": j.End(journalAt, Complete, nil, nil),
			} {
				if !errors.Is(err, unix.EIO) {
					t.Errorf("%s: got %v, want EIO", name, err)
				}
			}
		})
	}
}

func TestJournalRemove(t *testing.T) {
	w, j := newJournal(t)
	noError(t, j.Remove(), j.Remove())
	if _, err := os.Lstat(journalFileOf(w)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want it gone", err)
	}
	if err := j.Text(journalAt, "s", Stdout, []byte("x"), false); err == nil {
		t.Error("text after Remove: got no error")
	}
}

func TestJournalHostileFiles(t *testing.T) {
	tests := []struct {
		name string
		make func(path string) error
	}{
		{"symbolic link", func(path string) error { return os.Symlink(filepath.Join(filepath.Dir(path), "target"), path) }},
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &Workspace{dir: t.TempDir()}
			noError(t, os.Mkdir(filepath.Join(w.dir, "output"), 0o700), tt.make(journalFileOf(w)))
			if _, err := w.OpenJournal(journalRun, "x", journalAt); err == nil {
				t.Error("OpenJournal: got no error")
			}
			if err := w.ReadJournal(journalRun, nil); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("ReadJournal: got %v, want an error that is not ErrNotExist", err)
			}
			if _, err := os.Lstat(filepath.Join(w.dir, "output", "target")); err == nil {
				t.Error("a link was written through")
			}
		})
	}
	for _, run := range []string{"", "..", "a/b", `a\b`, "a\x00"} {
		w := &Workspace{dir: filepath.Join(t.TempDir(), "w")}
		_, err := w.OpenJournal(run, "x", journalAt)
		if err == nil || w.ReadJournal(run, nil) == nil {
			t.Errorf("run id %q: got no error", run)
		}
		if _, err := os.Lstat(w.dir); err == nil {
			t.Errorf("run id %q: something was created", run)
		}
	}
}

// Whatever a step prints, in whatever pieces, comes back byte for byte.
func TestJournalGivesBackTheBytes(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SliceOf(rapid.Byte()),
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SampledFrom([][]byte{
			[]byte("line\n"), []byte("\n"), []byte("\r\n"), {0}, {0, 0, 0}, []byte(`"}`), []byte(`","partial":true}`),
			[]byte(`\`), []byte(`\u0041`), []byte("\u2028\u2029\ufeff\ufffd"), []byte("日本語"), []byte("🎈"), {0xf0, 0x9f}, {0x8e, 0x88},
			{0xed, 0xa0, 0x80}, {0xc0, 0x80}, bytes.Repeat([]byte("0123456789"), 1000), {0x7f, 0x1f, 0x1b},
		}),
	)
	w, _ := newJournal(t)
	rapid.Check(t, func(rt *rapid.T) {
		noError(t, os.Remove(journalFileOf(w)))
		j, err := w.OpenJournal(journalRun, "x", journalAt)
		noError(t, err)
		defer j.Close()
		want := map[string][]byte{}
		carry := map[string][]byte{}
		split := rapid.Bool().Draw(rt, "split")
		for _, data := range rapid.SliceOf(piece).Draw(rt, "pieces") {
			step := rapid.SampledFrom([]string{"a", `b"\`, "ü"}).Draw(rt, "step")
			stream := rapid.SampledFrom([]string{Stdout, Stderr}).Draw(rt, "stream")
			key := step + "/" + stream
			want[key] = append(want[key], data...)
			if split {
				data = append(carry[key], data...)
				data, carry[key] = SplitUTF8(data)
			}
			noError(t, j.Text(journalAt, step, stream, data, rapid.Bool().Draw(rt, "partial")))
		}
		for key, rest := range carry {
			step, stream, _ := strings.Cut(key, "/")
			noError(t, j.Text(journalAt, step, stream, rest, false))
		}
		got := map[string][]byte{}
		for _, e := range readEntries(t, w) {
			if e.Kind == "text" {
				got[e.Step+"/"+e.Stream] = append(got[e.Step+"/"+e.Stream], e.Text...)
			}
		}
		for key := range want {
			if !bytes.Equal(got[key], want[key]) {
				rt.Errorf("%s: got %q, want %q", key, got[key], want[key])
			}
		}
	})
}

func TestJournalGivesBackLongLines(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789é\x00"), 1<<20)[:10<<20]
	tests := []struct {
		name string
		data []byte
	}{
		{"10 MB in one line", long},
		{"with its line's end", append(bytes.Clone(long[:maxPiece]), '\n')},
		{"controls", bytes.Repeat([]byte{1}, maxPiece+1)},
		{"not UTF-8", bytes.Repeat([]byte{0xff, 0xfe}, maxPiece/2+1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, j := newJournal(t)
			noError(t, j.Text(journalAt, "s", Stdout, tt.data, true))
			var got []byte
			for _, e := range readEntries(t, w) {
				got = append(got, e.Text...)
				if e.Kind == "text" && !e.Partial {
					t.Error("a piece of a longer line is not marked")
				}
				if len(e.Text) > maxPiece {
					t.Errorf("a record of %d bytes", len(e.Text))
				}
			}
			if !bytes.Equal(got, tt.data) {
				t.Errorf("got %d other bytes, want %d", len(got), len(tt.data))
			}
		})
	}
}

// The hand-written codec agrees with the JSON library, both ways.
func TestJournalTextAgreesWithJSON(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		data := rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.SliceOf(rapid.ByteMax(0x7f)),
			rapid.SliceOf(rapid.Byte()),
		).Draw(rt, "data")
		line := appendMember([]byte(`{"kind":"text","at":"2026-11-30T16:29:03.123Z"`), "step", "s")
		line = append(appendData(appendMember(line, "stream", "stdout"), data), '}')

		var rec struct {
			Text   string `json:"text"`
			Base64 []byte `json:"base64"`
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			rt.Fatalf("the library reads %q: %v", line, err)
		}
		if got := append(rec.Base64, rec.Text...); !bytes.Equal(got, data) {
			rt.Fatalf("the library reads %q, want %q", got, data)
		}
		e, ok := parseText(line, &Entry{})
		if !ok || !bytes.Equal(e.Text, data) {
			rt.Fatalf("parseText: got %q, %v; want %q", e.Text, ok, data)
		}
	})
}

// Where parseText takes a line at all, it reads what the JSON library reads.
func FuzzJournalParseText(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"a\n\u0001é"}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"a","partial":true}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","base64":"/2E="}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"a\"}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"a","x":"b"}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"\ud83c\udf88"}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.123Z","step":"s","stream":"stdout","text":"\u00e9"}`,
		`{"kind":"text","at":"2026-11-30T16:29:03.1234","step":"s","stream":"stdout","text":"a"}`,
		"{\"kind\":\"text\",\"at\":\"2026-11-30T16:29:03.123Z\",\"step\":\"s\",\"stream\":\"stdout\",\"base64\":\"/2\r\nE=\"}",
		"{\"kind\":\"text\",\"at\":\"2026-11-30T16:29:03.123Z\",\"step\":\"s\",\"stream\":\"stdout\",\"text\":\"a\xff\"}",
		"{\"kind\":\"text\",\"at\":\"0000-01-10T00:00:00,000Z\",\"step\":\"\",\"stream\":\"\",\"base64\":\"00\n00\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, ok := parseText(line, &Entry{})
		if !ok {
			return
		}
		var want struct {
			Step    string `json:"step"`
			Stream  string `json:"stream"`
			Text    string `json:"text"`
			Base64  []byte `json:"base64"`
			Partial bool   `json:"partial"`
			At      Stamp  `json:"at"`
		}
		if err := json.Unmarshal(line, &want, jsontext.AllowDuplicateNames(true)); err != nil {
			t.Fatalf("parseText takes %q, the library does not: %v", line, err)
		}
		text := append(want.Base64, want.Text...)
		if got.Step != want.Step || got.Stream != want.Stream || !bytes.Equal(got.Text, text) ||
			got.Partial != want.Partial || !got.At.Equal(want.At.Time) {
			t.Errorf("%q:\n got %+v\nwant %+v", line, got, want)
		}
	})
}

func TestSplitUTF8(t *testing.T) {
	tests := []struct{ name, data, whole, rest string }{
		{"empty", "", "", ""},
		{"ASCII", "abc", "abc", ""},
		{"complete", "é", "é", ""},
		{"1 of 2", "a\xc3", "a", "\xc3"},
		{"1 of 3", "a\xe6", "a", "\xe6"},
		{"2 of 3", "a\xe6\x97", "a", "\xe6\x97"},
		{"3 of 4", "a\xf0\x9f\x8e", "a", "\xf0\x9f\x8e"},
		{"complete 4", "a🎈", "a🎈", ""},
		{"only a part", "\xf0\x9f", "", "\xf0\x9f"},
		{"never valid", "a\xff", "a\xff", ""},
		{"continuations alone", "a\x80\x80\x80", "a\x80\x80\x80", ""},
		{"a surrogate's begin", "a\xed\xa0", "a\xed\xa0", ""},
		{"overlong", "a\xc0", "a\xc0", ""},
		{"too many continuations", "é\x80", "é\x80", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			whole, rest := SplitUTF8([]byte(tt.data))
			if string(whole) != tt.whole || string(rest) != tt.rest {
				t.Errorf("got %q and %q, want %q and %q", whole, rest, tt.whole, tt.rest)
			}
		})
	}
}

// A UTF-8 stream cut anywhere never needs base64.
func TestSplitUTF8KeepsText(t *testing.T) {
	stream := []byte(strings.Repeat("aé日🎈\n", 20))
	for size := 1; size < 12; size++ {
		w, j := newJournal(t)
		var carry []byte
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			var whole []byte
			whole, carry = SplitUTF8(append(carry, rest[:n]...))
			noError(t, j.Text(journalAt, "s", Stdout, whole, true))
			rest = rest[n:]
		}
		if len(carry) != 0 {
			t.Errorf("pieces of %d: %q is left", size, carry)
		}
		for _, line := range journalLines(t, w) {
			if strings.Contains(line, "base64") {
				t.Fatalf("pieces of %d: %s", size, line)
			}
		}
	}
}

// benchOutput is n bytes of 100-byte lines.
func benchOutput(n int) []byte {
	line := []byte(strings.Repeat("0123456789", 9) + "012345678\n")
	return bytes.Repeat(line, n/len(line)+1)[:n]
}

func BenchmarkJournalText(b *testing.B) {
	for _, tt := range []struct {
		name string
		data []byte
	}{
		{"ascii", benchOutput(128 << 10)},
		{"utf8", bytes.Repeat([]byte("größer als 日本語, sagt man\n"), 4000)},
		{"binary", bytes.Repeat([]byte{0xff, 0, 1, 2}, 32<<10)},
		{"line", benchOutput(100)},
	} {
		for _, to := range []string{"file", "nowhere"} {
			b.Run(tt.name+"/"+to, func(b *testing.B) {
				w, j := newJournal(b)
				if to == "nowhere" {
					j.file = nowhere{}
				}
				b.SetBytes(int64(len(tt.data)))
				b.ReportAllocs()
				written := 0
				for b.Loop() {
					if err := j.Text(journalAt, "dump", Stdout, tt.data, false); err != nil {
						b.Fatal(err)
					}
					if written += len(tt.data); written > 256<<20 {
						written = 0
						if err := os.Truncate(journalFileOf(w), 0); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Sync() error                 { return nil }
func (nowhere) Close() error                { return nil }

func BenchmarkReadJournal(b *testing.B) {
	for _, tt := range []struct {
		name string
		size int
	}{{"pieces of 64 KiB", 64 << 10}, {"pieces of a line", 100}} {
		b.Run(tt.name, func(b *testing.B) {
			w, j := newJournal(b)
			data := benchOutput(tt.size)
			total := 0
			for total < 32<<20 {
				noError(b, j.Text(journalAt, "dump", Stdout, data, false))
				total += len(data)
			}
			b.SetBytes(int64(total))
			for b.Loop() {
				n := 0
				if err := w.ReadJournal(journalRun, func(e Entry) error { n += len(e.Text); return nil }); err != nil || n != total {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// A start record that a full disk refuses must not leave a file behind, one for every tick.
func TestJournalThatCannotBeginLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	mountTemporary(t, dir, "size=64k")
	w := &Workspace{dir: dir}
	const old = "rn-old"
	j, err := w.OpenJournal(old, "x", journalAt)
	noError(t, err, j.Close())
	before := tree(t, w.path(outputDir))
	f, err := os.Create(filepath.Join(dir, "filler"))
	noError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	_ = f.Close()
	if _, err := w.OpenJournal(journalRun, "x", journalAt); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a new one: got %v, want ENOSPC", err)
	}
	if _, err := w.OpenJournal(old, strings.Repeat("x", 8<<10), journalAt); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("one to go on with: got %v, want ENOSPC", err)
	}
	after := tree(t, w.path(outputDir))
	if len(after) != len(before) {
		t.Errorf("files before %v, after %v", before, after)
	}
	if _, err := os.Lstat(w.path(outputDir, old+".jsonl")); err != nil {
		t.Errorf("the older journal: %v", err)
	}
	noError(t, os.Remove(filepath.Join(dir, "filler")))
	j, err = w.OpenJournal(journalRun, "x", journalAt)
	noError(t, err, j.Close())
}
