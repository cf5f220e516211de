package service

import (
	"context"
	"runtime"
	"sync"
	"time"

	"marbles/monitor"
)

// A gate bounds how many looks begin at once, so that a thousand monitors that are due together neither open a thousand
// connections nor walk a thousand trees at the same time. A look that takes longer than the gate's patience is left to go
// on, but counts no more: sources that hang can hold the others up, but not for long and not for good.
type gate struct {
	places   chan struct{}
	patience time.Duration
}

const (
	// urlLooks are many, for they wait more than they work. A healthy server has long answered within the patience.
	urlLooks    = 64
	urlPatience = time.Second
	// filePatience is longer: a tree that is read for the first time keeps disk and processor busy.
	filePatience = 5 * time.Second
)

// fileLooks is how many looks at files begin at once. Those of one project share what they read, so that it is not so few
// that monitors which are due together begin one after the other.
func fileLooks() int { return max(16, 4*runtime.GOMAXPROCS(0)) }

func newGate(places int, patience time.Duration) *gate {
	return &gate{places: make(chan struct{}, places), patience: patience}
}

// enter waits for a place and takes it. leave must be called once the look has ended.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-g.places })
	impatient := time.AfterFunc(g.patience, free)
	return func() { impatient.Stop(); free() }, nil
}

// gate is the one for a kind of source.
func (d *Dispatcher) gate(kind string) *gate {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gates == nil {
		d.gates = map[string]*gate{
			monitor.KindHTTP:  newGate(urlLooks, urlPatience),
			monitor.KindFiles: newGate(fileLooks(), filePatience),
		}
	}
	return d.gates[kind]
}
