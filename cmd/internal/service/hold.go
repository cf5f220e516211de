package service

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/state"
)

// hold is a workspace that this process alone serves.
type hold struct {
	ws     *state.Workspace
	config *string // where its definitions lie; nil for none

	mu sync.Mutex // guards what follows; held while it is looked after
	// locks are every service lock it took, the latest last. One is enough: a state root that was moved away and comes
	// back brings an older one with it.
	locks []*state.Lock
	beats bool   // heartbeat.json is written
	told  string // what was logged of its loss; "" while it is held
}

// keptLocks is how many files of released locks stay for the next ticks; each is an open file.
const keptLocks = 64

func (h *hold) held() bool { return slices.ContainsFunc(h.locks, (*state.Lock).Held) }

// take registers the workspace and makes this process its only service, or says with ErrSecond who that is.
func (s *service) take(h *hold) error {
	if err := h.ws.Register(h.config, time.Now()); err != nil {
		return err
	}
	lock, err := h.ws.LockService()
	if busy := (*state.HeldError)(nil); errors.As(err, &busy) {
		if busy.PID == os.Getpid() {
			return fmt.Errorf("cannot serve %s: its lock names this process, which does not hold it", h.ws.Project())
		}
		return fmt.Errorf("%w: %s is served by %s", ErrSecond, h.ws.Project(), busy.Holder)
	}
	if err != nil {
		return err
	}
	h.locks = append(h.locks, lock)
	h.ws.KeepLocks(keptLocks)
	const most = 2 // an older one than that comes back with no root that was moved away
	for len(h.locks) > most {
		if err := h.locks[0].Release(); err != nil {
			s.Log.Warn("an old service lock cannot be released", "workspace", h.ws.ID(), "error", err)
		}
		h.locks = h.locks[1:]
	}
	if err := h.ws.WriteHeartbeat(h.config, s.started); err != nil {
		s.Log.Error("status will not show this service", "workspace", h.ws.ID(), "error", err)
		return nil
	}
	h.beats = true
	return nil
}

// release gives the workspace up. One that is just being looked after, on a disk that hangs, is left to its lock's next
// taker, who finds that this process is gone.
func (h *hold) release() error {
	if !h.mu.TryLock() {
		return fmt.Errorf("cannot give %s up: its file system does not answer", h.ws.Project())
	}
	defer h.mu.Unlock()
	var errs []error
	if h.beats {
		errs = append(errs, h.ws.RemoveHeartbeat())
	}
	h.ws.KeepLocks(0)
	for _, lock := range h.locks {
		errs = append(errs, lock.Release())
	}
	return errors.Join(errs...)
}

// claim takes the workspaces of the catalogs.
func (s *service) claim(catalogs []*catalog.Catalog, cleanup *cleanups) ([]*Target, error) {
	var targets []*Target
	for _, c := range catalogs {
		ws, err := s.root.Workspace(c.Sources[0].Workspace)
		if err != nil {
			return nil, err
		}
		h := &hold{ws: ws, config: c.Sources[0].Config()}
		if err := s.take(h); err != nil {
			return nil, err
		}
		cleanup.push("workspace", h.release)
		s.holds = append(s.holds, h)
		targets = append(targets, &Target{Workspace: ws, Catalog: c})
	}
	return targets, nil
}

// reclaim gives each catalog of a reload its workspace, which is held already.
func (s *service) reclaim(catalogs []*catalog.Catalog) ([]*Target, error) {
	held := s.plan.Load()
	var targets []*Target
	for _, c := range catalogs {
		ws, err := s.root.Workspace(c.Sources[0].Workspace)
		if err != nil {
			return nil, err
		}
		t := held.target(ws)
		if t == nil {
			return nil, fmt.Errorf("cannot serve %s: a further workspace needs a restart", ws.Project())
		}
		targets = append(targets, &Target{Workspace: t.Workspace, Catalog: c})
	}
	return targets, nil
}

// regain takes workspaces again whose state was removed or moved away while the service ran: what is written from now on
// lies where its path says, and no second service is accepted. The error is ErrSecond, where one was meanwhile.
func (s *service) regain() error {
	for _, h := range s.holds {
		if err := s.keepHold(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) keepHold(h *hold) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held() {
		h.told = ""
		return nil
	}
	log := s.Log.With("workspace", h.ws.ID(), "dir", h.ws.Dir())
	if h.told == "" {
		h.told = "lost"
		log.Error("state was removed or moved away under the service")
	}
	err := s.take(h)
	if err == nil {
		log.Warn("state was set up again, histories begin anew")
		if t := s.plan.Load().target(h.ws); t != nil {
			_, err = firstSights(t, time.Now(), s.Log)
		}
	}
	if errors.Is(err, ErrSecond) {
		return err
	}
	if err != nil && err.Error() != h.told {
		h.told = err.Error()
		log.Error("state cannot be set up again, trying on", "error", err)
	}
	return nil
}
