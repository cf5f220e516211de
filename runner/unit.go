package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"marbles/runner/transient"
	"marbles/state"
)

// A step with Isolate runs as a transient unit of the init system. Its process is no child of this one: it outlives a
// restart or an upgrade of the service, and the next service goes on with it.
//
// That is done by parking. A service that stops leaves such a step alone, and its run is parked, waiting for the unit. A
// service that is killed leaves a run that says running; whoever comes next looks whether nothing but units was at work,
// and parks it then (see outlive). Adopting a run that waits for a unit sets it going at once: its step takes the unit
// over instead of starting one.
//
// The unit writes its output into files of its private directory, from where it goes into the journal. Each record there says
// up to which offset, so that whoever takes over goes on at the very byte. What the journal has is punched out of the file. The unit
// stays loaded when its process has ended, and says how, until the step's end is in the journal.

// Units are transient units of the init system; see [transient.Manager].
type Units interface {
	Start(ctx context.Context, spec transient.Spec) (transient.State, error)
	Look(ctx context.Context, name string) (transient.State, error)
	Wait(ctx context.Context, name string) (transient.State, error)
	Signal(ctx context.Context, name string, sig syscall.Signal) error
	Stop(ctx context.Context, name string) (left []string, err error)
	// Keeps reports whether TempDir outlives this process (RuntimeDirectoryPreserve=yes).
	Keeps(ctx context.Context) bool
}

// Isolate is what the unit of a step is like besides what the step says itself.
type Isolate struct {
	Directives []Directive
}

// Directive is a setting of a unit by systemd's name, with the value as a definition gives it.
type Directive struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// Properties are the directives as the manager takes them.
func (i *Isolate) Properties() (list []transient.Property, err error) {
	for _, d := range i.Directives {
		p, err := transient.Check(d.Name, d.Value)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// errUnitLeft says that a step's unit was left alone, because this process ends.
var errUnitLeft = &stopped{status: state.Suspended, err: state.RunError{Name: "Error", Message: "its unit was left alone"}}

const (
	// askUnits is how long the manager may take to answer, and stopUnits how long to end what ignores a signal.
	askUnits  = 30 * time.Second
	stopUnits = 30 * time.Second
	unitName  = "marbles-step-"
	// followTries is how often it is tried, a second apart, to open a unit's output.
	followTries = 30
)

// unit is the unit that a step's process runs in.
type unit struct {
	state.UnitRef
	taken    bool // from a process before this one
	withheld bool // its output may show secrets that are not known any more
}

// own is the part of the unit's directory that is the step's user's. What lies beside it is written and read by others.
func (u *unit) own() string { return filepath.Join(u.Dir, "own") }

func (u *unit) prefix() string { return filepath.Join(u.own(), "step") }

func (u *unit) file(name string) string { return filepath.Join(u.Dir, name) }

// outlived is the unit that an earlier process left to this step; nil for none.
func (s *step) outlived() *state.Suspension {
	if w := s.waited(state.SuspendUnit); w != nil && w.Status == state.Pending && w.Unit() != nil {
		return w
	}
	return nil
}

// doUnit runs the step's process in a unit to its end, or takes over the one that has it.
func (s *step) doUnit(ctx context.Context, own []string, input []member) *stopped {
	if s.r.w.o.Units == nil {
		s.rec.Cause = "spawn"
		return failed("SpawnError", "could not be started: cannot make a unit for it: this marbles knows no init system that has them")
	}
	if s.Isolate == nil { // it was isolated when the unit was started
		s.Isolate = &Isolate{}
	}
	before := s.unit
	u := s.takeOver()
	if u != nil {
		s.unit = u
		s.recall(u)
		s.r.journal.takingOver(s.label(), &u.UnitRef)
		s.r.w.at("unit spawning")
	} else if why := s.beginUnit(ctx, own, input, before); why != nil {
		return why
	}
	u = s.unit
	s.rec.Unit = u.Unit
	why := s.followUnit(ctx, u)
	if why == errUnitLeft {
		return why
	}
	return s.conclude(ctx, u.prefix(), why)
}

// beginUnit makes a unit for the step and starts it. Once that is on record the unit of an attempt before it is forgotten.
func (s *step) beginUnit(ctx context.Context, own []string, input []member, before *unit) *stopped {
	u, err := s.newUnit(ctx)
	if err != nil {
		return s.notStarted(ctx, err)
	}
	env, inputFile, why := s.prepare(u.prefix(), own, input)
	if why != nil {
		s.r.w.removeUnit(u.UnitRef)
		return why
	}
	_ = inputFile.Close()
	err = s.r.journal.spawning(s.label(), &u.UnitRef)
	s.freeUnit(before)
	s.unit = u
	if err != nil {
		return s.notStarted(ctx, fmt.Errorf("its start cannot be recorded: %w", err))
	}
	s.r.w.at("unit spawning")
	why = s.startUnit(ctx, u, env)
	s.r.w.at("unit spawned")
	return why
}

// notStarted is why there is no unit: somebody stopped the run meanwhile, or it could not be started.
func (s *step) notStarted(ctx context.Context, err error) *stopped {
	if ctx.Err() != nil {
		return asStopped(context.Cause(ctx))
	}
	s.rec.Cause = "spawn"
	return failed("SpawnError", "could not be started: %v", err)
}

// takeOver is the unit that was left to this step, as its process; nil where none was.
func (s *step) takeOver() *unit {
	w := s.outlived()
	if w == nil || s.attached {
		return nil
	}
	s.attached = true
	s.closes = append(s.closes, w.ID)
	ref := w.Unit()
	s.rec.StartedAt = state.ToMillis(ref.Since.Time)
	if ref.Attempt > 1 {
		s.rec.Attempts = ref.Attempt
	}
	s.r.journal.line(s.label(), "taken over in "+ref.Unit)
	return &unit{UnitRef: *ref, taken: true}
}

// newUnit names a unit for the step and makes its private directory.
func (s *step) newUnit(ctx context.Context) (*unit, error) {
	r := s.r
	parent := r.ws.Units()
	if r.who != nil {
		ctx, cancel := context.WithTimeout(ctx, askUnits)
		defer cancel()
		if parent = r.w.o.TempDir; !openToAll(parent) || !r.w.o.Units.Keeps(ctx) {
			return nil, state.Hint(fmt.Errorf("user %s cannot get to %s, and %s does not outlive the service", r.launch.Workflow.User, r.ws.Units(), parent),
				"set RuntimeDirectoryPreserve=yes and RuntimeDirectoryMode=0711 in the service's unit, or leave out user")
		}
	} else if err := os.Mkdir(parent, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	name := fmt.Sprintf("%s%s-%s", unitName, strings.TrimPrefix(r.id, "rn-"), strconv.FormatInt(time.Now().UnixMilli()<<8|int64(r.w.units.Add(1)&0xff), 36))
	u := &unit{UnitRef: state.UnitRef{
		Unit: name + ".service", Dir: filepath.Join(parent, name), Path: s.path(), Attempt: max(s.rec.Attempts, 1),
		Since: state.Stamp{Time: time.UnixMilli(int64(s.rec.StartedAt))}, At: state.Stamp{Time: time.Now()},
	}}
	if err := u.makeDir(r.who); err != nil {
		r.w.removeUnit(u.UnitRef)
		return nil, fmt.Errorf("cannot make a private directory: %w", err)
	}
	return u, nil
}

// makeDir makes the unit's directory. That another user may use a part of it must not let him put anything where root writes.
func (u *unit) makeDir(who *identity) error {
	if err := os.Mkdir(u.Dir, 0o700); err != nil {
		return err
	}
	if who != nil {
		if err := os.Chmod(u.Dir, 0o711); err != nil {
			return err
		}
	}
	if err := os.Mkdir(u.own(), 0o700); err != nil {
		return err
	}
	return who.give(u.own())
}

// putNew writes a file that is not there yet, through no link.
func putNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// startUnit starts the unit. Where that fails there is none.
func (s *step) startUnit(ctx context.Context, u *unit, env []string) *stopped {
	fail := func(err error) *stopped { return s.notStarted(ctx, err) }
	spec, err := s.unitSpec(ctx, u, env)
	if err != nil {
		return fail(err)
	}
	text, err := transient.EnvText(env)
	if err != nil {
		return fail(err)
	}
	if err := s.keepSecrets(s.private(ctx, u, secretsFile), env); err != nil {
		return fail(err)
	}
	for _, file := range []string{spec.Stdout, spec.Stderr} { // where there is output it is known what to mask in it
		if err := putNew(file, nil); err != nil {
			return fail(err)
		}
	}
	if err := putNew(spec.EnvFile, text); err != nil {
		return fail(err)
	}
	defer os.Remove(spec.EnvFile) // it has secrets, and was read when the process is there
	start, cancel := context.WithTimeout(ctx, askUnits)
	defer cancel()
	if _, err := s.r.w.o.Units.Start(start, spec); err != nil {
		return fail(err)
	}
	return nil
}

// unitSpec is what the manager is told of a unit.
func (s *step) unitSpec(ctx context.Context, u *unit, env []string) (spec transient.Spec, err error) {
	r, argv, dir := s.r, s.argv(), s.workdir()
	path, err := findCommand(argv[0], dir, env)
	if err != nil && !filepath.IsAbs(argv[0]) {
		return spec, err
	} else if err != nil {
		path = argv[0] // the unit may see more of the system than this process
	}
	spec = transient.Spec{
		Name: u.Unit, Description: fmt.Sprintf("marbles: %s, step %s (%s)", r.file.Run.Step, s.label(), r.id),
		Path: path, Argv: argv, Dir: dir, EnvFile: s.private(ctx, u, environmentFile), Stdout: u.file(state.Stdout), Stderr: u.file(state.Stderr),
		UMask: umask(), Grace: r.w.o.Grace, Memory: s.Limits.Memory, CPU: s.Limits.CPU, Tasks: s.Limits.Tasks,
		LogFields: []string{"MARBLES_RUN=" + r.id, "MARBLES_KEY=" + r.launch.Key, "MARBLES_WORKSPACE=" + r.ws.ID()},
	}
	if r.who != nil {
		spec.User, spec.Group = strconv.Itoa(int(r.who.uid)), strconv.Itoa(int(r.who.gid))
		for _, g := range r.who.groups {
			spec.Groups = append(spec.Groups, strconv.Itoa(int(g)))
		}
	}
	if spec.Properties, err = s.Isolate.Properties(); err != nil {
		return spec, err
	}
	if slices.ContainsFunc(s.Isolate.Directives, Directive.narrows) {
		for _, name := range []string{"ReadWritePaths", "BindPaths"} { // its result and questions go there
			p, err := transient.Check(name, []any{u.own()})
			if err != nil {
				return spec, err
			}
			spec.Properties = append(spec.Properties, p)
		}
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	if end, ok := ctx.Deadline(); ok { // for the time without a service; a service ends it before that
		spec.Limit = time.Until(end) + r.w.o.Grace + stopUnits
	}
	return spec, nil
}

// narrows reports whether a directive can take a part of the file system away from the unit.
func (d Directive) narrows() bool {
	return slices.Contains([]string{"ProtectSystem", "ProtectHome", "ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem", "RootDirectory", "PrivateTmp"}, d.Name)
}

// umask is this process's file mode creation mask.
func umask() uint32 {
	text, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, "Umask:"); ok {
				if n, err := strconv.ParseUint(strings.TrimSpace(v), 8, 32); err == nil {
					return uint32(n)
				}
			}
		}
	}
	return 0o077
}

// unitEnded is how the process of a unit ended; an error where that cannot be known.
type unitEnded struct {
	transient.State
	err error
}

// followUnit takes the unit's output until it has ended, and records how.
func (s *step) followUnit(ctx context.Context, u *unit) *stopped {
	ctx, cancel := s.unitTime(ctx, u)
	defer cancel()
	streams, err := s.followStreams(u)
	for again := 0; err != nil && again < followTries && !errors.Is(err, fs.ErrNotExist) && !within(ctx.Done(), time.Second); again++ {
		streams, err = s.followStreams(u) // too many files may be open
	}
	if err != nil {
		return asStopped(fmt.Errorf("lost its output: %w", err))
	}
	defer streams.close()
	wait, stopWaiting := context.WithCancel(context.Background())
	defer stopWaiting()
	ended := make(chan unitEnded, 1)
	go func() { // ends with wait
		ended <- s.awaitUnit(wait, u)
	}()
	var leave <-chan struct{}
	if s.r.mayLeave() {
		leave = s.r.w.stop
	}
	var forced *stopped
	var got unitEnded
	var killAt time.Time
	select {
	case got = <-ended:
		killAt = time.Now().Add(s.r.w.o.Grace)
	case <-leave:
		streams.leave()
		return errUnitLeft
	case <-ctx.Done():
		forced, killAt = asStopped(context.Cause(ctx)), time.Now().Add(s.r.w.o.Grace)
		got = s.forceUnit(u, ended, killAt)
	}
	s.endUnitRest(u, got.State, killAt)
	streams.end(s.r.ctx)
	s.unitUsage(got.State)
	switch {
	case forced != nil:
		s.rec.Cause = causeOf(forced)
		return forced
	case !got.Loaded || !got.Ended:
		return failed("UnitError", "lost its unit %s: somebody stopped it, or the machine was restarted", u.Unit)
	}
	return s.unitEnd(got.State)
}

// unitTime is a context that ends with the time of an attempt. One that was taken over counts from where it began; what has ended
// already did so in its time, or systemd would have ended it.
func (s *step) unitTime(ctx context.Context, u *unit) (context.Context, context.CancelFunc) {
	if !u.taken {
		return s.limited(ctx)
	}
	look, cancel := context.WithTimeout(context.Background(), askUnits)
	st, err := s.r.w.o.Units.Look(look, u.Unit)
	cancel()
	if err == nil && (st.Running || st.Ended) { // then it has been read; whoever started it was killed before it was removed
		s.r.w.forget(u.UnitRef, environmentFile)
	}
	if s.Timeout <= 0 || err == nil && st.Ended {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, u.At.Add(s.Timeout), timedOut(s.Timeout))
}

// awaitUnit waits for the end of a unit's process. A manager that cannot be asked for a while is no reason to end anything.
func (s *step) awaitUnit(ctx context.Context, u *unit) unitEnded {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for said := false; ; {
		st, err := s.r.w.o.Units.Wait(ctx, u.Unit)
		if err == nil || ctx.Err() != nil {
			return unitEnded{st, err}
		}
		if !said {
			said = true
			s.r.log().Warn("unit of a step cannot be looked at, trying until it can be", "unit", u.Unit, "error", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// forceUnit ends the process of a unit, by SIGTERM, and SIGKILL from killAt on.
func (s *step) forceUnit(u *unit, ended <-chan unitEnded, killAt time.Time) unitEnded {
	for _, at := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGTERM, time.Until(killAt)}, {syscall.SIGKILL, closeTime}} {
		s.signalUnit(u, at.sig)
		t := time.NewTimer(at.wait)
		defer t.Stop()
		select {
		case got := <-ended:
			return got
		case <-t.C:
		}
	}
	return unitEnded{}
}

// mayLeave reports whether the run's units outlive this process.
func (r *Run) mayLeave() bool { return r.w.o.Parks && r.mayPark() == nil }

// leaves reports whether this process ends and leaves them.
func (r *Run) leaves() bool {
	select {
	case <-r.w.stop:
		return r.mayLeave()
	default:
		return false
	}
}

// ourUnit reports whether a record names a unit and a directory such as a run of ours makes: nothing else is stopped or
// removed, whatever a record says.
func ourUnit(run string, u state.UnitRef) bool {
	name, ok := strings.CutSuffix(u.Unit, ".service")
	return ok && strings.HasPrefix(name, unitName+strings.TrimPrefix(run, "rn-")+"-") && !strings.Contains(name, "/") &&
		filepath.Base(u.Dir) == name
}

// parkForUnit is the report of a step whose unit is left alone.
func (s *step) parkForUnit() event {
	if s.unit.taken {
		s.closes = nil // it still waits for the same
		return event{parked: true}
	}
	return event{parked: true, waits: []state.Suspension{s.suspend(state.SuspendUnit, "unit "+s.unit.Unit, s.unit.UnitRef)}}
}
