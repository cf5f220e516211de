package runner

import (
	"sync/atomic"
)

const (
	// defaultOutputLimit is how much output of a run its journal takes, in bytes.
	defaultOutputLimit = 64 << 20
	// keptTail is how much of what is above that is kept to the end of each stream.
	keptTail = 256 << 10
)

// outputCap counts a run's output against its limit.
type outputCap struct {
	limit int64 // 0: none
	used  atomic.Int64
}

// take says how many of n bytes the journal still takes.
func (o *outputCap) take(n int) int {
	if o.limit <= 0 {
		return n
	}
	used := o.used.Add(int64(n))
	return int(max(0, min(int64(n), o.limit-(used-int64(n)))))
}

// tail is the end of a stream whose run has had its share of the journal.
type tail struct {
	data    []byte
	dropped int64
}

func (t *tail) add(b []byte) {
	t.data = append(t.data, b...)
	if over := len(t.data) - 2*keptTail; over > 0 {
		t.cut()
	}
}

// cut forgets all but the last keptTail bytes.
func (t *tail) cut() {
	if over := len(t.data) - keptTail; over > 0 {
		t.dropped += int64(over)
		t.data = append(t.data[:0], t.data[over:]...)
	}
}
