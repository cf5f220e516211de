package runner

import (
	"context"
	"syscall"
	"time"

	"marbles/state"
)

// endRun ends the processes of a run whose owner is gone: SIGTERM, SIGKILL after the grace. Where ctx ends first
// they go on, and the run must not be settled.
func (w *Worker) endRun(ctx context.Context, run string, tr trace) error {
	killAt := time.Now().Add(w.o.Grace)
	l := &leftover{w: w, run: run, groups: tr.groups, cgroups: w.cgroups.ofRun(run, tr.cgroups), sure: map[int]bool{}}
	defer l.removeGroups()
	told := map[procID]syscall.Signal{}
	pause := time.Millisecond
	wait := time.NewTimer(pause)
	defer wait.Stop()
	for {
		left := l.find()
		if len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, sig := time.Now(), syscall.SIGTERM
		if !now.Before(killAt) {
			sig = syscall.SIGKILL
		}
		if now.After(killAt.Add(closeTime)) {
			w.o.Log.Error("processes of a run cannot be ended", "run", run, "processes", names(left))
			return nil // there is no more that could be done
		}
		for _, p := range left {
			if told[p.id()] == sig {
				continue
			}
			const most = 10 // of a crowd, or of one that starts another for each that is ended
			if told[p.id()] == 0 && len(told) < most {
				w.o.Log.Warn("process of a dead owner's run is ended", "run", run, "process", p.String())
			}
			told[p.id()] = sig
			signalProc(p, sig)
			if sig != syscall.SIGKILL {
				signalProc(p, syscall.SIGCONT)
			}
		}
		wait.Reset(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// leftover finds the processes of a run whose owner is gone.
type leftover struct {
	w      *Worker
	run    string
	groups []state.Process // as recorded at spawn
	sure   map[int]bool    // groups that are known to be the run's
	// cgroups are control groups of the run: whatever is in one is the run's.
	cgroups []string
}

// removeGroups removes the run's control groups, once nothing lives in them.
func (l *leftover) removeGroups() {
	for _, dir := range l.cgroups {
		removeCgroup(dir)
	}
}

// find lists what carries the run's id in its environment, and what is in a group of the run. A group number may have
// been given to other processes since; it is the run's where its leader is the process that was recorded, or where a
// member carries the run's id. Once that was seen it stays so while the group lasts.
func (l *leftover) find() []proc {
	all := allProcs()
	byID := map[procID]bool{}
	alive := map[int]bool{}
	for _, p := range all {
		alive[p.group] = true
		if runIDOf(p) == l.run {
			byID[p.id()] = true
		}
	}
	for _, g := range l.groups {
		if g.BootID != "" && g.BootID != l.w.self.BootID || g.PID <= 1 {
			continue
		}
		if !alive[g.PID] {
			delete(l.sure, g.PID)
			continue
		}
		for _, p := range all {
			leader := p.pid == g.PID && g.StartTicks != 0 && p.start == g.StartTicks
			if leader || p.group == g.PID && byID[p.id()] {
				l.sure[g.PID] = true
			}
		}
	}
	var found []proc
	for _, p := range all {
		if byID[p.id()] || l.sure[p.group] {
			found = append(found, p)
		}
	}
	for _, dir := range l.cgroups {
		for _, p := range cgroupMembers(dir) {
			if !byID[p.id()] && !l.sure[p.group] {
				found = append(found, p)
			}
		}
	}
	return found
}
