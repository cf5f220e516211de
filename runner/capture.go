package runner

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"marbles/state"
)

const (
	captureBuffer = 256 << 10
	// hurry is a read that shows a writer which fills the pipe faster than we read. Only such a pipe is made larger:
	// a user may have only so many large ones.
	hurry     = 32 << 10
	largePipe = 1 << 20
	// lineWait is how long the beginning of a line waits for its end before it is recorded as a piece.
	lineWait = 20 * time.Millisecond
)

// capture reads one stream of a step's process into the journal, byte for byte.
//
// What arrived together is one record; it ends at the end of a line where there is one, and what is left over waits a
// moment for more. Memory does not grow with the output.
type capture struct {
	journal      *journal
	echo         *echo
	step, stream string
	f            *os.File
	done         chan struct{}
	mask         *mask          // nil where the run has no secrets
	cap          *outputCap     // how much of it the journal takes
	also         io.WriteCloser // gets it too; nil for none
	tail         tail           // what it does not take, to its end
	kept         *kept          // of a stream that is kept elsewhere until the journal has it; nil for the others

	withheld bool        // nothing of it may be shown
	leaving  atomic.Bool // the stream goes on without us: nothing is put where it was cut
	stopping atomic.Bool
	dead     sync.Mutex // guards abandoned, and is held while the journal is written
	aband    bool
}

// pipeReader is the reading end of a pipe as a file with deadlines.
func pipeReader(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "|0")
}

// run reads until the stream ends, or until stop was called and what was in the pipe then has been read.
func (c *capture) run(buf []byte) {
	defer close(c.done)
	if c.also != nil {
		defer c.also.Close()
	}
	held := 0      // bytes at the start of buf that were not emitted
	waits := false // a read deadline is set
	grown := false // the pipe
	left := -1     // how much may still be read; -1: no limit
	for {
		if left < 0 && c.stopping.Load() {
			left = c.pending()
		}
		if left == 0 {
			break
		}
		if want := held > 0 && left < 0; want || waits {
			waits = want
			c.deadline(want)
		}
		room := buf[held:]
		if left > 0 && len(room) > left {
			room = room[:left]
		}
		n, err := c.f.Read(room)
		if left > 0 {
			left -= n
		}
		switch {
		case n > 0:
			if n >= hurry && !grown {
				grown = true
				growPipe(c.f)
			}
			held = c.lines(buf, held+n)
		case errors.Is(err, os.ErrDeadlineExceeded):
			held = c.piece(buf, held)
		case err != nil:
			c.last(buf[:held])
			return
		}
	}
	c.last(buf[:held])
}

// last emits the end of the stream, and what of its end the journal had no room for before.
func (c *capture) last(data []byte) {
	if c.leaving.Load() {
		c.piece(data, len(data))
		return
	}
	c.emit(data, false)
	if c.mask != nil {
		c.put(c.mask.end(), false)
	}
	c.dead.Lock()
	defer c.dead.Unlock()
	if c.aband || len(c.tail.data) == 0 {
		return
	}
	c.tail.cut()
	if c.tail.dropped > 0 {
		c.journal.dropped(c.step, c.stream, c.tail.dropped)
	}
	c.journal.text(c.step, c.stream, c.tail.data, false)
}

// deadline sets or clears the time until which a read waits. After stop, a read never waits: the deadline stop has set
// stays.
func (c *capture) deadline(set bool) {
	c.dead.Lock()
	defer c.dead.Unlock()
	switch {
	case c.stopping.Load():
	case set:
		_ = c.f.SetReadDeadline(time.Now().Add(lineWait))
	default:
		_ = c.f.SetReadDeadline(time.Time{})
	}
}

// pending is how many bytes are in the pipe once stop was called. They can be read without waiting.
func (c *capture) pending() int {
	c.dead.Lock() // stop has set its deadline
	defer c.dead.Unlock()
	n := 0
	if conn, err := c.f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), fionread) })
	}
	_ = c.f.SetReadDeadline(time.Time{})
	return n
}

// lines emits the whole lines in buf[:n] and moves the rest to the front. A line that fills the buffer goes as a piece.
func (c *capture) lines(buf []byte, n int) (held int) {
	end := bytes.LastIndexByte(buf[:n], '\n') + 1
	c.emit(buf[:end], false)
	held = copy(buf, buf[end:n])
	if held == len(buf) {
		held = c.piece(buf, held)
	}
	return held
}

// piece emits the beginning of a line, except for a character that has not arrived whole.
func (c *capture) piece(buf []byte, held int) int {
	whole, rest := state.SplitUTF8(buf[:held])
	c.emit(whole, true)
	return copy(buf, rest)
}

func (c *capture) emit(data []byte, partial bool) {
	c.kept.take(len(data))
	if len(data) > 0 && c.mask != nil {
		data = c.mask.next(data)
		partial = partial || len(c.mask.held) > 0
	}
	c.put(data, partial)
}

// put records what may be shown.
func (c *capture) put(data []byte, partial bool) {
	if len(data) == 0 || c.withheld {
		return
	}
	c.dead.Lock()
	gone := c.aband
	if !gone {
		c.record(data, partial)
	}
	c.dead.Unlock()
	if !gone {
		c.echo.write(data)
		if c.also != nil {
			_, _ = c.also.Write(data)
		}
	}
}

// record puts data into the journal, as far as that takes it, and the rest into the tail. dead is held.
func (c *capture) record(data []byte, partial bool) {
	n := c.cap.take(len(data))
	switch {
	case n == len(data) && len(c.tail.data) == 0:
		to := c.kept.offset(c.held())
		if c.journal.textTo(c.step, c.stream, data, partial, to) {
			c.kept.done(to)
		}
		return
	case c.kept != nil && c.mask != nil:
		n = 0 // how much of what was read this is a part of cannot be told once it is masked
	default:
		if whole, _ := state.SplitUTF8(data[:n]); len(whole) > 0 {
			n = len(whole)
			c.journal.textTo(c.step, c.stream, whole, true, c.kept.offset(len(data)-n))
		} else {
			n = 0
		}
	}
	c.tail.add(data[n:])
	c.kept.tailed(len(data)-n, c.held())
}

// held is how much of what was read is still to come.
func (c *capture) held() int {
	if c.mask == nil {
		return 0
	}
	return len(c.mask.held)
}

// stop lets the capture read what is in the pipe now and end, although someone still has the pipe open.
func (c *capture) stop() {
	c.dead.Lock()
	defer c.dead.Unlock()
	c.stopping.Store(true)
	_ = c.f.SetReadDeadline(time.Unix(1, 0))
}

// abandon makes sure that nothing more is recorded by a capture that cannot end, because its echo does not take what
// it gets.
func (c *capture) abandon() {
	c.dead.Lock()
	defer c.dead.Unlock()
	c.aband = true
	_ = c.f.Close()
}
