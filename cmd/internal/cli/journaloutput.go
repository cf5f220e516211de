package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	slogjournal "github.com/systemd/slog-journal"

	"marbles/runner"
	"marbles/state"
)

// journalSocket is where the systemd journal takes entries.
const journalSocket = "/run/systemd/journal/socket"

// openJournal is a handler that sends to the systemd journal; an error where there is none.
func openJournal(socket string, level slog.Level) (slog.Handler, error) {
	if info, err := os.Stat(socket); err != nil {
		return nil, err
	} else if info.Mode()&fs.ModeSocket == 0 {
		return nil, errors.New(socket + " is no socket")
	}
	return journalHandler(level)
}

// journalOutput sends the output of steps to the systemd journal in the background, a line as an entry. A journal that
// takes nothing holds no run: what does not fit into the queue is dropped, counted, and said. The output journal of the
// run is the truth.
type journalOutput struct {
	to    slog.Handler
	lines chan outputLine
	bytes atomic.Int64 // in lines
	lost  atomic.Int64 // lines that were dropped, since that was said last
	said  time.Time    // when that was; of the goroutine that sends
	quit  chan struct{}
	ended chan struct{}
}

type outputLine struct {
	to    slog.Handler
	level slog.Level
	at    time.Time
	text  string
}

const (
	outputLines = 1 << 16
	outputBytes = 8 << 20 // in the queue
	sayEvery    = 10 * time.Second
	longestLine = 48 << 10 // as the journal's own, LineMax=; a longer one is several entries
)

func newJournalOutput(to slog.Handler) *journalOutput {
	o := &journalOutput{to: to, lines: make(chan outputLine, outputLines), quit: make(chan struct{}), ended: make(chan struct{})}
	go o.run() // close waits for it
	return o
}

// stream takes one stream of a step.
func (o *journalOutput) stream(s runner.Stream) io.WriteCloser {
	attrs := []slog.Attr{slog.String("workspace", s.Workspace.ID()), slog.String("run", s.Run), slog.String("step", s.Step), slog.String("stream", s.Name)}
	if s.Key != "" {
		attrs = append(attrs, slog.String("key", s.Key))
	}
	level := slog.LevelInfo
	if s.Name == state.Stderr {
		level = slogjournal.LevelNotice
	}
	return &outputStream{o: o, to: o.to.WithAttrs(attrs), level: level}
}

// outputStream cuts a stream into lines. It has one writer.
type outputStream struct {
	o     *journalOutput
	to    slog.Handler
	level slog.Level
	part  []byte // of a line that has not ended
}

func (s *outputStream) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		room := longestLine - len(s.part)
		end := bytes.IndexByte(b[:min(len(b), room+1)], '\n')
		switch {
		case end >= 0:
			s.send(b[:end])
			b = b[end+1:]
		case len(b) <= room:
			s.part = append(s.part, b...)
			return n, nil
		default:
			whole, _ := state.SplitUTF8(b[:room])
			if len(whole) == 0 {
				whole = b[:room]
			}
			s.send(whole)
			b = b[len(whole):]
		}
	}
	return n, nil
}

// Close sends a last line that has no end.
func (s *outputStream) Close() error {
	if len(s.part) > 0 {
		s.send(nil)
	}
	return nil
}

// send sends what is held and the rest of its line.
func (s *outputStream) send(rest []byte) {
	text := string(append(s.part, rest...))
	s.part = s.part[:0]
	size := int64(len(text))
	if s.o.bytes.Add(size) > outputBytes {
		s.o.bytes.Add(-size)
		s.o.lost.Add(1)
		return
	}
	select {
	case s.o.lines <- outputLine{s.to, s.level, time.Now(), text}:
	default:
		s.o.bytes.Add(-size)
		s.o.lost.Add(1)
	}
}

func (o *journalOutput) run() {
	defer close(o.ended)
	for {
		select {
		case l := <-o.lines:
			o.write(l)
		case <-o.quit:
			for {
				select {
				case l := <-o.lines:
					o.write(l)
				default:
					o.say(0)
					return
				}
			}
		}
	}
}

func (o *journalOutput) write(l outputLine) {
	o.bytes.Add(-int64(len(l.text)))
	if l.to.Handle(context.Background(), slog.NewRecord(l.at, l.level, l.text, 0)) != nil {
		o.lost.Add(1)
		return
	}
	o.say(sayEvery)
}

// say tells how many lines were dropped, unless that was said a moment ago.
func (o *journalOutput) say(pause time.Duration) {
	if o.lost.Load() == 0 || !o.said.IsZero() && time.Since(o.said) < pause {
		return
	}
	o.said = time.Now()
	n := o.lost.Swap(0)
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "output lines were not sent to the systemd journal, which did not take them; the runs' own journals have them", 0)
	r.AddAttrs(slog.Int64("lines", n))
	if o.to.Handle(context.Background(), r) != nil {
		o.lost.Add(n)
	}
}

// close sends what waits, and is how many lines could not be sent in time. No stream may be open any more.
func (o *journalOutput) close(patience time.Duration) (lost int64) {
	close(o.quit)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-o.ended:
		return o.lost.Load()
	case <-late.C:
		return o.lost.Load() + int64(len(o.lines))
	}
}
