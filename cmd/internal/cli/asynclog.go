package cli

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// asyncLog writes a log in the background: a reader that has stalled, as one that no longer reads a pipe, must not stop
// the service. What does not fit into its queue is dropped and counted.
type asyncLog struct {
	to      slog.Handler
	records chan *asyncRecord
	lost    atomic.Int64  // records that were not written, since that was said last
	quit    chan struct{} // closed by close
	ended   chan struct{} // closed when everything is written
}

type asyncRecord struct {
	to     slog.Handler
	record slog.Record
}

// asyncRecords is how many records may wait: a few MiB at most, and enough for every key of a large catalog to say
// something at once.
const asyncRecords = 8192

func newAsyncLog(to slog.Handler) *asyncLog {
	l := &asyncLog{
		to:      to,
		records: make(chan *asyncRecord, asyncRecords),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
	go l.run() // close waits for it
	return l
}

func (l *asyncLog) logger() *slog.Logger { return slog.New(asyncHandler{l.to, l}) }

// close writes what waits and reports whether that could be done in time. Nothing may be logged any more.
func (l *asyncLog) close(patience time.Duration) bool {
	close(l.quit)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-l.ended:
		return true
	case <-late.C:
		return false
	}
}

func (l *asyncLog) run() {
	defer close(l.ended)
	for {
		select {
		case r := <-l.records:
			l.write(r)
		case <-l.quit:
			if len(l.records) == 0 {
				l.say()
				return
			}
		}
	}
}

func (l *asyncLog) write(r *asyncRecord) {
	if r.to.Handle(context.Background(), r.record) != nil {
		l.lost.Add(1)
		return
	}
	l.say()
}

// say tells how many records were lost.
func (l *asyncLog) say() {
	n := l.lost.Swap(0)
	if n == 0 {
		return
	}
	said := slog.NewRecord(time.Now(), slog.LevelError, "log records were lost, nobody took them", 0)
	said.AddAttrs(slog.Int64("records", n))
	if l.to.Handle(context.Background(), said) != nil {
		l.lost.Add(n)
	}
}

// asyncHandler hands records to an asyncLog, which gives them to the handler.
type asyncHandler struct {
	slog.Handler
	log *asyncLog
}

func (h asyncHandler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.log.records <- &asyncRecord{h.Handler, r.Clone()}:
	default:
		h.log.lost.Add(1)
	}
	return nil
}

func (h asyncHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asyncHandler{h.Handler.WithAttrs(attrs), h.log}
}

func (h asyncHandler) WithGroup(name string) slog.Handler {
	return asyncHandler{h.Handler.WithGroup(name), h.log}
}
