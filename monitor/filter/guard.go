package filter

import (
	"context"
	"fmt"
	"runtime/metrics"
)

// How much the heap of the process may grow while one filter works. The densest JSON takes some 55 times its size. Other
// work of the process counts too, which cannot be told apart.
const (
	memory        = 256 << 20
	memoryForByte = 64 // of the body
)

// A guard ends work when its context does, or when memory swells: a page of a few kilobytes can ask a parser for
// gigabytes of elements, and a program can double a string forever.
type guard struct {
	ctx    context.Context
	done   <-chan struct{}
	sample [1]metrics.Sample
	limit  uint64 // of the heap's growth
	base   uint64
	err    error
}

// newGuard allows the memory, and more for each byte of a body.
func newGuard(ctx context.Context, memory uint64, body []byte) *guard {
	g := &guard{ctx: ctx, done: ctx.Done(), limit: memory + memoryForByte*uint64(len(body))}
	g.sample[0].Name = "/memory/classes/heap/objects:bytes"
	g.base = g.heap()
	return g
}

func (g *guard) heap() uint64 {
	metrics.Read(g.sample[:])
	return g.sample[0].Value.Uint64()
}

// check is why to stop, or nil. It costs about a microsecond.
func (g *guard) check() error {
	if g.err == nil {
		g.err = g.ended()
	}
	if now := g.heap(); g.err == nil && now > g.base+g.limit {
		g.err = fmt.Errorf("needs more than %d MiB of memory", g.limit>>20)
	}
	return g.err
}

// ended is why the context ended, or nil.
func (g *guard) ended() error {
	select {
	case <-g.done:
		return context.Cause(g.ctx)
	default:
		return nil
	}
}
