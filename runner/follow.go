package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"marbles/state"
)

// kept says how far a stream that is kept in a file has got into the journal. nil is for a stream that is not.
type kept struct {
	origin int64 // offset at which it was begun to be read
	read   int64 // bytes that the capture has taken
	// restart is how many bytes there were when the file was begun anew, by a step that opened /dev/stdout; 0 for never.
	restart atomic.Int64
	safe    atomic.Int64 // nothing before that offset is needed any more

	behind, ahead mark // of the tail
}

// mark is a place in what was put into the tail.
type mark struct{ put, offset int64 }

func (k *kept) take(n int) {
	if k != nil {
		k.read += int64(n)
	}
}

// offset is how far the journal is in the file, where so much of what was taken is still to come.
func (k *kept) offset(rest int) int64 {
	if k == nil {
		return 0
	}
	read := k.read - int64(rest)
	if restart := k.restart.Load(); restart > 0 && read >= restart {
		return read - restart
	}
	return k.origin + read
}

// done says that what is before an offset is in the journal.
func (k *kept) done(offset int64) {
	if k != nil {
		k.safe.Store(offset)
	}
}

// tailed says that so many bytes were put into the tail. What has fallen out of that is not needed any more.
func (k *kept) tailed(n, rest int) {
	if k == nil {
		return
	}
	k.ahead.put += int64(n)
	k.ahead.offset = k.offset(rest)
	if k.ahead.put-k.behind.put > 2*keptTail {
		if k.behind.put > 0 {
			k.done(k.behind.offset)
		}
		k.behind = k.ahead
	}
}

const (
	followPause    = 5 * time.Millisecond
	maxFollowPause = 200 * time.Millisecond
	// punchStep is how much has to be in the journal before it is taken out of the file.
	punchStep = 1 << 20
)

// follower copies a growing file into a pipe, for a capture.
type follower struct {
	file    *os.File
	pipe    *os.File
	kept    *kept
	at      int64 // offset
	copied  int64
	punched int64
	finish  chan struct{} // closed: nothing is written any more, so the end is the end
	quit    chan struct{} // closed: no more
	done    chan struct{}
}

func (f *follower) run() {
	defer close(f.done)
	defer f.file.Close()
	defer f.pipe.Close()
	buf := make([]byte, 64<<10)
	t := time.NewTimer(0)
	defer t.Stop()
	last := false
	for pause := followPause; ; {
		select {
		case <-f.quit:
			return
		default:
		}
		n, err := f.file.Read(buf)
		if n > 0 {
			if _, werr := f.pipe.Write(buf[:n]); werr != nil {
				return // the capture was abandoned
			}
			f.copied += int64(n)
			f.at += int64(n)
			f.punch()
			pause = followPause
			continue
		}
		if f.begunAnew() {
			continue
		}
		if last || err != nil && !errors.Is(err, io.EOF) {
			return
		}
		t.Reset(pause)
		select {
		case <-f.quit:
			return
		case <-f.finish:
			last = true
		case <-t.C:
		}
		pause = min(2*pause, maxFollowPause)
	}
}

// begunAnew reports whether somebody emptied the file, as a shell does that opens /dev/stderr to write to it, and goes to its
// beginning then. What was not copied by then is lost.
func (f *follower) begunAnew() bool {
	if sizeOf(f.file) >= f.at {
		return false
	}
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return false
	}
	f.at, f.punched = 0, 0
	f.kept.restart.Store(max(f.copied, 1))
	return true
}

// punch takes out of the file what nobody needs any more, so that a disk has to hold the output only once.
func (f *follower) punch() {
	safe := min(f.kept.safe.Load(), f.at) // what it says may be of the file before it was begun anew
	if safe-f.punched >= punchStep {
		punchHole(f.file, safe)
		f.punched = safe
	}
}

// followed are both streams of a unit.
type followed struct {
	captures  []*capture
	followers []*follower
	quit      chan struct{}
	finish    chan struct{}
	grace     time.Duration
}

// followStreams begins to take the unit's output, from where the journal has it.
func (s *step) followStreams(u *unit) (*followed, error) {
	all := &followed{quit: make(chan struct{}), finish: make(chan struct{}), grace: s.r.w.o.Grace}
	from := map[string]int64{}
	if u.taken {
		var used int64
		var err error
		if from, used, err = s.r.offsets(s.label(), u.Unit); err != nil {
			return nil, err
		}
		if s.r.output.used.Load() == 0 {
			s.r.output.used.Store(used)
		}
	}
	for _, stream := range []string{state.Stdout, state.Stderr} {
		if err := s.followStream(all, u, stream, from[stream]); err != nil {
			all.leave()
			return nil, err
		}
	}
	return all, nil
}

func (s *step) followStream(all *followed, u *unit, stream string, from int64) error {
	file, err := os.OpenFile(filepath.Join(u.Dir, stream), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if from > sizeOf(file) {
		from = 0 // it was begun anew
	}
	at, err := dataFrom(file, from)
	if err != nil {
		file.Close()
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		file.Close()
		return err
	}
	c := s.newCapture(stream, r)
	c.kept = &kept{origin: at}
	c.kept.safe.Store(from)
	c.withheld = u.withheld
	c.tail.dropped = at - from
	f := &follower{file: file, pipe: w, kept: c.kept, at: at, punched: from, finish: all.finish, quit: all.quit, done: make(chan struct{})}
	all.captures, all.followers = append(all.captures, c), append(all.followers, f)
	s.begin(c)
	go f.run() // end and leave wait for it
	return nil
}

// offsets are how far the journal has got with the streams of a unit, and how much output it has in all.
func (r *Run) offsets(step, unit string) (from map[string]int64, used int64, err error) {
	from = map[string]int64{}
	latest := "" // of the step's units
	err = r.ws.ReadJournal(r.id, func(e state.Entry) error {
		switch {
		case e.Kind == "spawn" && e.Step == step:
			now := ""
			if e.Unit != nil {
				now = e.Unit.Unit
			}
			if now != latest { // else it was taken over
				clear(from)
			}
			latest = now
		case e.Kind == "text" && e.Stream != state.StepStream:
			if used += int64(len(e.Text)); e.Step == step && e.Offset > 0 {
				from[e.Stream] = e.Offset
			}
		}
		return nil
	})
	if latest != unit {
		clear(from)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return from, used, err
}

// end takes the rest of the output of a unit in which nothing is left that writes.
func (f *followed) end(ctx context.Context) {
	close(f.finish)
	for _, l := range f.followers {
		select {
		case <-l.done:
		case <-ctx.Done():
			within(l.done, f.grace)
		}
	}
	closeStreams(ctx, f.captures, ctx.Err() != nil, time.Now().Add(f.grace), f.grace)
	f.close()
}

// leave stops at a byte that the journal knows; the unit goes on.
func (f *followed) leave() {
	for _, c := range f.captures {
		c.leaving.Store(true)
	}
	f.close()
	for _, c := range f.captures {
		if !within(c.done, f.grace) {
			c.abandon()
		}
	}
}

// close ends the followers.
func (f *followed) close() {
	select {
	case <-f.quit:
	default:
		close(f.quit)
	}
	for i, l := range f.followers {
		if !within(l.done, drainTime) {
			f.captures[i].abandon() // then its pipe takes nothing more
			<-l.done
		}
	}
}

func sizeOf(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
