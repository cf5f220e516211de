package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"marbles/runner"
	"marbles/state"
)

// entries is a journal that keeps what it gets, one text a line: level, message, fields. It takes nothing before its gate
// is closed.
type entries struct {
	gate  chan struct{}
	to    *[]string
	attrs string
}

func (e entries) Enabled(context.Context, slog.Level) bool { return true }
func (e entries) WithGroup(string) slog.Handler            { return e }

func (e entries) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		e.attrs += " " + a.String()
	}
	return e
}

func (e entries) Handle(_ context.Context, r slog.Record) error {
	<-e.gate
	text := r.Message + e.attrs
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	*e.to = append(*e.to, fmt.Sprint(r.Level)+" "+text)
	return nil
}

func streamOf(t *testing.T, key, name string) runner.Stream {
	t.Helper()
	return runner.Stream{Workspace: newPlace(t).workspace(t.TempDir()), Run: "rn-1", Key: key, Step: "dump", Name: name}
}

func TestJournalOutputIsLines(t *testing.T) {
	var got []string
	e := entries{gate: make(chan struct{}), to: &got}
	close(e.gate)
	o := newJournalOutput(e)
	out := streamOf(t, "backup", state.Stdout)
	w := o.stream(out)
	long := strings.Repeat("é", longestLine/2+10)
	for _, piece := range []string{"one\ntw", "o\n", "\n", long + "\n", "no end"} {
		if _, err := io.WriteString(w, piece); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	errs := streamOf(t, "", state.Stderr)
	w = o.stream(errs)
	io.WriteString(w, "oh\n")
	w.Close()
	if lost := o.close(time.Second); lost != 0 {
		t.Errorf("%d lines are lost", lost)
	}
	tail := " workspace=" + out.Workspace.ID() + " run=rn-1 step=dump stream=stdout key=backup"
	want := []string{
		"INFO one" + tail, "INFO two" + tail, "INFO " + tail,
		"INFO " + strings.Repeat("é", longestLine/2) + tail, "INFO " + strings.Repeat("é", 10) + tail, "INFO no end" + tail,
		"INFO+1 oh workspace=" + errs.Workspace.ID() + " run=rn-1 step=dump stream=stderr",
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d: %.300q", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d is %.200q, want %.200q", i, got[i], want[i])
		}
	}
}

// TestJournalOutputHoldsNobody: a journal that takes nothing costs lines, which are counted, and never the step's time.
func TestJournalOutputHoldsNobody(t *testing.T) {
	s := streamOf(t, "k", state.Stdout)
	synctest.Test(t, func(t *testing.T) {
		var got []string
		e := entries{gate: make(chan struct{}), to: &got}
		o := newJournalOutput(e)
		w := o.stream(s)
		io.WriteString(w, "first\n")
		synctest.Wait() // it has left the queue, and waits for the journal
		w.Write(bytes.Repeat([]byte("x\n"), outputLines+7))
		close(e.gate)
		w.Close()
		if lost := o.close(time.Second); lost != 0 {
			t.Errorf("%d lines are lost at the end", lost)
		}
		said := ""
		lines := 0
		for _, l := range got {
			if strings.HasPrefix(l, "INFO x ") {
				lines++
			} else if strings.HasPrefix(l, "WARN") {
				said += l
			}
		}
		if lines != outputLines || strings.Count(said, "lines=7") != 1 {
			t.Errorf("%d lines arrived, want %d, and it is said: %q", lines, outputLines, said)
		}
	})
}

func TestJournalOutputIsBounded(t *testing.T) {
	s := streamOf(t, "k", state.Stdout)
	synctest.Test(t, func(t *testing.T) {
		var got []string
		e := entries{gate: make(chan struct{}), to: &got}
		o := newJournalOutput(e)
		w := o.stream(s)
		w.Write(bytes.Repeat([]byte("y"), 4*outputBytes))
		if held := o.bytes.Load(); held > outputBytes {
			t.Errorf("%d bytes wait, want at most %d", held, outputBytes)
		}
		began := time.Now()
		if lost := o.close(time.Second); lost == 0 || time.Since(began) != time.Second {
			t.Errorf("closing says %d lines are lost after %s, where nobody takes them", lost, time.Since(began))
		}
		close(e.gate) // so that its goroutine ends
	})
}

// TestNoLineIsLostWhereTheServiceCannotStart: what was logged before is written, and the error comes after it.
func TestNoLineIsLostWhereTheServiceCannotStart(t *testing.T) {
	p := newPlace(t)
	p.write(p.dir+"/.foundry/marbles/x.yaml", "workflows: {a: {frob: 1}}\n")
	_, errs, code := p.main("run", "--dry-run", "--log-format", "json")
	log, end := strings.Index(errs, "dry run: nothing is written"), strings.Index(errs, "cannot use the definitions")
	if code != exitUsage || log < 0 || end < log {
		t.Errorf("exit %d, and the log is:\n%s", code, errs)
	}
}

// TestErrorsAreErrorsInTheJournal: what a command ends with has the priority of an error, where stderr is the journal's.
func TestErrorsAreErrorsInTheJournal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	code := Main(Env{Args: []string{"frob"}, Env: []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)}, Stdout: io.Discard, Stderr: f})
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := "<3>marbles: unknown command \"frob\"\n<3>hint: "; code != exitUsage || !strings.HasPrefix(string(got), want) {
		t.Errorf("exit %d: %q, want %q…", code, got, want)
	}
}
