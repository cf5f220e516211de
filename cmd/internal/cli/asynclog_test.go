package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalling is a log's reader that stops to read: writes block until the gate is closed.
type stalling struct {
	gate chan struct{}
	bytes.Buffer
}

func (s *stalling) Write(b []byte) (int, error) {
	<-s.gate
	return s.Buffer.Write(b)
}

func plainHandler(w interface{ Write([]byte) (int, error) }) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}})
}

func TestAsyncLogLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stalling{gate: make(chan struct{})}
		l := newAsyncLog(plainHandler(w))
		log := l.logger()
		var want strings.Builder
		for i := range asyncRecords {
			log.With("a", 1).WithGroup("g").Info("said", "i", i)
			fmt.Fprintf(&want, "msg=said a=1 g.i=%d\n", i)
		}
		time.AfterFunc(999*time.Millisecond, func() { close(w.gate) })
		if !l.close(time.Second) {
			t.Fatal("what waited is not written within a second")
		}
		if got := w.String(); got != want.String() {
			t.Errorf("%d bytes were written, want %d", len(got), want.Len())
		}
	})
}

func TestAsyncLogDropsAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stalling{gate: make(chan struct{})}
		l := newAsyncLog(plainHandler(w))
		log := l.logger()
		log.Info("first")
		synctest.Wait() // it has left the queue, and waits in the writer
		for range asyncRecords + 7 {
			log.Info("more")
		}
		close(w.gate)
		if !l.close(time.Second) {
			t.Fatal("what waited is not written within a second")
		}
		if got, want := strings.Count(w.String(), "msg=more\n"), asyncRecords; got != want {
			t.Errorf("%d records are written, want %d", got, want)
		}
		if got := strings.Count(w.String(), "records=7\n"); got != 1 {
			t.Errorf("the 7 that were lost are told %d times, want once", got)
		}
	})
}

func TestAsyncLogGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stalling{gate: make(chan struct{})}
		l := newAsyncLog(plainHandler(w))
		l.logger().Info("never read")
		began := time.Now()
		if l.close(time.Second) || time.Since(began) != time.Second {
			t.Errorf("closing takes %s where nobody reads, want to give up after 1 s", time.Since(began))
		}
		close(w.gate) // so that its goroutine ends
	})
}

// failing is a log that cannot be written for a time.
type failing struct {
	bytes.Buffer
	err error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Buffer.Write(b)
}

func TestAsyncLogCountsWhatCouldNotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &failing{err: errors.New("no space left")}
		l := newAsyncLog(plainHandler(w))
		l.logger().Info("one")
		l.logger().Info("two")
		synctest.Wait()
		w.err = nil
		l.logger().Info("three")
		l.close(time.Second)
		if got := w.String(); !strings.HasPrefix(got, "msg=three\n") || !strings.HasSuffix(got, "records=2\n") {
			t.Errorf("written is %q, want three, and that 2 were lost", got)
		}
	})
}
