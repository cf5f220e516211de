package service

import (
	"context"
	"runtime/debug"
	"time"
)

// keeper does what looks at disks and sources while the service is at work, one thing after the other and beside the loop
// that hears signals: what hangs in it keeps the service neither from being fed nor from stopping.
type keeper struct {
	s      *service
	reload chan struct{} // asks for a reload; the next only once reloaded has told of this one
	// reloaded has how a reload ended, lost why the service must not go on. Both have room.
	reloaded, lost chan error
	done           chan struct{} // closed when run has returned; nil before begin
}

// regainInterval is how often is looked whether the workspaces are still this service's.
const regainInterval = 2 * time.Second

func newKeeper(s *service) *keeper {
	return &keeper{s: s, reload: make(chan struct{}, 1), reloaded: make(chan error, 1), lost: make(chan error, 1)}
}

// begin begins its work, until ctx ends.
func (k *keeper) begin(ctx context.Context) {
	k.done = make(chan struct{})
	go k.run(ctx) // waited for by end
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	paused := time.NewTicker(pauseInterval)
	defer paused.Stop()
	held := time.NewTicker(regainInterval)
	defer held.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.reload:
			k.reloaded <- k.s.reload(ctx)
		case <-paused.C:
			k.s.pauses.look()
			k.s.handed.look()
		case <-held.C:
			if err := k.s.regain(); err != nil {
				k.lost <- err
				return
			}
		}
	}
}

// keepPatience is how long the end of a service waits for what it was looking at.
const keepPatience = 2 * time.Second

// end waits for its work, whose context has ended; but a disk that hangs is not waited for.
func (k *keeper) end() error {
	if k.done == nil {
		return nil
	}
	t := time.NewTimer(keepPatience)
	defer t.Stop()
	select {
	case <-k.done:
	case <-t.C:
		k.s.Log.Warn("a look at definitions or state does not end, its file system does not answer")
	}
	return nil
}

// reload reads every definition again: all or nothing. Everything that can fail comes first and touches nothing that is in
// force; the swap cannot fail. Settings and the list of sources need a restart. Once ctx has ended nothing is swapped.
func (s *service) reload(ctx context.Context) error {
	catalogs, err := s.load()
	if err != nil {
		return err
	}
	targets, err := s.reclaim(catalogs)
	if err != nil {
		return err
	}
	s.pauses.take(targets)
	s.handed.take(targets)
	p, triggers, err := makePlan(targets, time.Now(), s.zone.Location(), s.Log)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.handed.say(s.plan.Load(), p)
	s.plan.Store(p)
	s.loop.Set(triggers)
	s.live.watch(p)
	s.desk.forget(func(id string) bool { return p.armed[id].monitor != nil })
	debug.FreeOSMemory()
	return nil
}
