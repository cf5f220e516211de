package runner

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"marbles/runner/transient"
	"marbles/state"
)

// unitEnd records how the process of a unit ended.
func (s *step) unitEnd(st transient.State) *stopped {
	if s.rec.Cause = "code"; st.Signal != 0 {
		s.signaled(st.Signal)
	} else if st.ExitCode >= 0 {
		s.rec.ExitCode = &st.ExitCode
	}
	switch {
	case st.Result == "oom-kill":
		s.rec.Cause = "oom"
		return failed("OutOfMemoryError", "ran out of memory")
	case st.Result == "timeout":
		s.rec.Cause = "timeout"
		return failed("TimeoutError", "ran out of its time while no service looked after it")
	case st.Signal != 0:
		return failed("SignalError", "was ended by %s", s.rec.Signal)
	case st.ExitCode < 0:
		return failed("UnitError", "ended in a way that cannot be told: somebody may have restarted its unit")
	case st.ExitCode != 0:
		return failed("ExitError", "exited with code %d", st.ExitCode)
	}
	return nil
}

func (s *step) unitUsage(st transient.State) {
	s.rec.UserMS, s.rec.SystemMS = st.User.Milliseconds(), st.System.Milliseconds()
	if st.User+st.System == 0 {
		s.rec.CPUMS = st.CPU.Milliseconds()
	}
	s.rec.MaxRSS = st.MemoryPeak
}

func (s *step) signalUnit(u *unit, sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), askUnits)
	defer cancel()
	if err := s.r.w.o.Units.Signal(ctx, u.Unit, sig); err != nil {
		s.r.log().Error("unit of a step cannot be ended", "unit", u.Unit, "error", err)
	}
}

// endUnitRest ends what the main process of a unit has left in it. What is ending by itself gets a moment for that.
func (s *step) endUnitRest(u *unit, st transient.State, killAt time.Time) {
	if st.Cgroup == "" {
		return
	}
	dir := unitCgroup(st.Cgroup)
	termAt, pause := time.Now().Add(drainTime), time.Millisecond
	told := syscall.Signal(0)
	for {
		left := cgroupMembers(dir)
		now := time.Now()
		switch {
		case len(left) == 0, now.After(killAt.Add(closeTime)):
			return
		case now.Before(termAt) && told == 0:
		case !now.Before(killAt) && told != syscall.SIGKILL:
			told = syscall.SIGKILL
			s.signalUnit(u, told)
		case told == 0:
			s.rec.Leftover, told = names(left), syscall.SIGTERM
			s.signalUnit(u, told)
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// freeUnit lets the manager forget a unit whose end is in the journal, and removes its directory.
func (s *step) freeUnit(u *unit) {
	if u != nil && s.r.w.stopUnit(s.r.id, u.UnitRef) {
		s.r.w.removeUnit(u.UnitRef)
	}
}

// stopUnit ends a unit and lets the manager forget it. It reports whether that is done.
func (w *Worker) stopUnit(run string, u state.UnitRef) bool {
	if w.o.Units == nil || !ourUnit(run, u) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.o.Grace+stopUnits)
	defer cancel()
	if _, err := w.o.Units.Stop(ctx, u.Unit); err != nil {
		w.o.Log.Error("unit of a step cannot be ended", "run", run, "unit", u.Unit, "error", err)
		return false
	}
	return true
}

// removeUnit removes the files of a unit that is ours and has ended.
func (w *Worker) removeUnit(u state.UnitRef) {
	w.forget(u, secretsFile)
	w.forget(u, environmentFile)
	if err := os.RemoveAll(u.Dir); err != nil {
		w.o.Log.Warn("private directory of a unit cannot be removed", "unit", u.Unit, "error", err)
	}
}

// dropUnits ends the units that a run which ends still waits for, and keeps what they have put out.
func (r *Run) dropUnits() {
	for _, s := range r.file.Open() {
		if u := s.Unit(); u != nil {
			r.dropUnit(*u)
			s.Close(time.Now())
		}
	}
}

func (r *Run) dropUnit(u state.UnitRef) {
	if r.w.stopUnit(r.id, u) {
		r.salvage(u)
		r.w.removeUnit(u)
	}
}

// salvage puts into the journal what a unit has put out that nobody has followed to its end.
func (r *Run) salvage(ref state.UnitRef) {
	s := &step{r: r}
	if len(ref.Path) > 1 {
		s.Name = ref.Path[1]
	}
	if len(ref.Path) > 2 {
		if i, err := strconv.Atoi(ref.Path[2]); err == nil {
			s.item = &i
		}
	}
	u := &unit{UnitRef: ref, taken: true}
	if _, err := os.Lstat(u.file(state.Stderr)); err != nil {
		return // it had not begun
	}
	s.recall(u)
	streams, err := s.followStreams(u)
	if err != nil {
		r.log().Warn("output of a unit is lost", "unit", ref.Unit, "error", err)
		return
	}
	streams.end(r.ctx)
}
