package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"marbles/state"
)

// maxResult is how large a result file may be, in bytes.
const maxResult = 1 << 20

// workdir is where the step runs.
func (s *step) workdir() string {
	switch wf := s.r.launch.Workflow; {
	case s.dir != "":
		return s.dir
	case s.Workdir != "":
		return s.Workdir
	case wf.Workdir != "":
		return wf.Workdir
	}
	return s.r.ws.Project()
}

// argv is what is executed.
func (s *step) argv() []string {
	if len(s.Command.Argv) > 0 {
		return s.Command.Argv
	}
	shell := s.Shell
	if shell == nil {
		shell = s.r.launch.Workflow.Shell
	}
	if shell == nil {
		shell = []string{"sh", "-c"}
	}
	return append(append([]string(nil), shell...), s.Command.Shell)
}

// do runs the step's process to its end.
func (s *step) do(ctx context.Context, own []string, input []member) *stopped {
	if s.Isolate != nil || s.outlived() != nil {
		return s.doUnit(ctx, own, input)
	}
	prefix := filepath.Join(s.r.dir, s.scratch)
	env, inputFile, why := s.prepare(prefix, own, input)
	if why != nil {
		return why
	}
	defer clearInput(inputFile)
	if s.Worktree != nil {
		leave, why := s.enterWorktree(ctx, own)
		if why != nil {
			return why
		}
		defer leave()
	}
	return s.conclude(ctx, prefix, s.process(ctx, env))
}

// The files that a step and its process exchange, behind the prefix that is theirs.
const (
	resultSuffix = "-result"
	askSuffix    = "-ask"
)

// prepare writes what the step's process reads, and makes its environment.
func (s *step) prepare(prefix string, own []string, input []member) (env []string, in *os.File, why *stopped) {
	r := s.r
	inputFile := prefix + inputSuffix
	file, err := putInput(inputFile, object(input))
	if err == nil {
		defer func() {
			if why != nil {
				clearInput(file)
			}
		}()
		err = r.who.give(inputFile)
	}
	if err != nil {
		return nil, nil, asStopped(fmt.Errorf("cannot get its input: %w", err))
	}
	secret, err := s.secretEnv()
	if err != nil {
		s.rec.Cause = "spawn"
		return nil, nil, failed("SpawnError", "could not be started: %v", err)
	}
	if err := s.putLedger(prefix + askSuffix); err != nil {
		return nil, nil, asStopped(fmt.Errorf("cannot get what it was answered: %w", err))
	}
	env = mergeEnv(r.w.env, r.who.environment(), r.launch.Workflow.Env, s.Env, secret, r.launch.Env, own, []string{
		"MARBLES_STEP=" + s.Name, "MARBLES_INPUT_FILE=" + inputFile, "MARBLES_RESULT_FILE=" + prefix + resultSuffix,
		AskDirVariable + "=" + prefix + askSuffix,
	})
	return env, file, nil
}

// conclude takes what the step's process has left, where that has ended as it should.
func (s *step) conclude(ctx context.Context, prefix string, why *stopped) *stopped {
	r, resultFile := s.r, prefix+resultSuffix
	if why = s.askedInstead(prefix+askSuffix, why); why != nil {
		return why
	}
	if err := r.who.mayRead(resultFile); err != nil {
		return asStopped(fmt.Errorf("left a result that cannot be read: %w", err))
	}
	data, err := readResult(resultFile)
	if data != nil {
		defer os.Remove(resultFile)
	}
	if err != nil {
		return asStopped(fmt.Errorf("left a result that cannot be read: %w", err))
	}
	s.rec.Result = r.secrets.value(resultValue(data))
	if err := s.keepArtifacts(ctx, s.workdir()); err != nil {
		return asStopped(err)
	}
	return nil
}

// secretEnv reads the step's secrets, as they are now.
func (s *step) secretEnv() (env []string, err error) {
	for _, list := range [][]Secret{s.r.launch.Workflow.Secrets, s.Secrets} {
		for _, secret := range list {
			value, err := secret.Read()
			if err == nil && strings.Contains(value, "\x00") {
				err = errors.New("it holds a NUL, which no variable can")
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read secret %s: %w", secret.Name, err)
			}
			s.r.secrets.add(value)
			env = append(env, secret.Name+"="+value)
		}
	}
	return env, nil
}

// process starts the step's process, reads its output, and waits until all of it has ended.
func (s *step) process(ctx context.Context, env []string) *stopped {
	r := s.r
	ctx, cancel := s.limited(ctx)
	defer cancel()
	c, streams, err := s.spawn(env)
	if err != nil {
		return asStopped(err)
	}
	forced, killAt := s.await(ctx, c, streams)
	if forced == nil {
		killAt = time.Now().Add(r.w.o.Grace)
	}
	c.endRest(killAt)
	if whole := closeStreams(r.ctx, streams, forced != nil, killAt, r.w.o.Grace); !whole && forced == nil {
		forced = asStopped(context.Cause(r.ctx))
	}
	status, usage, ended := c.reap()
	s.rec.UserMS, s.rec.SystemMS = millis(usage.Utime), millis(usage.Stime)
	s.rec.MaxRSS = maxRSS(&usage)
	oom := s.groupUsage(c.group)
	c.group.remove()
	if ended {
		s.exit(status)
	}
	if forced != nil {
		s.rec.Cause = causeOf(forced)
		return forced
	}
	s.rec.Leftover = c.rest
	switch {
	case !ended:
		return failed("Error", "ended in a way that cannot be told")
	case oom && (status.Signaled() || status.ExitStatus() != 0):
		s.rec.Cause = "oom"
		return failed("OutOfMemoryError", "ran out of memory: it may use %s", byteSize(s.Limits.Memory))
	case status.Signaled():
		return failed("SignalError", "was ended by %s", s.rec.Signal)
	case status.ExitStatus() != 0:
		return failed("ExitError", "exited with code %d", status.ExitStatus())
	}
	return nil
}

// groupUsage records what all processes of the step have used, and reports whether they ran out of their memory.
func (s *step) groupUsage(g *cgroup) (oom bool) {
	if g == nil {
		return false
	}
	user, system, memory, oom, ok := g.usage()
	if ok {
		s.rec.UserMS, s.rec.SystemMS = user.Milliseconds(), system.Milliseconds()
		s.rec.MaxRSS = max(s.rec.MaxRSS, memory)
	}
	return oom
}

// causeOf is what ended a step that had to end, as its record names it.
func causeOf(why *stopped) string {
	switch {
	case why.err.Name == "TimeoutError":
		return "timeout"
	case why.status == state.Cancelled:
		return causeCancel
	}
	return ""
}

// byteSize is a number of bytes as people write it.
func byteSize(n int64) string {
	const unit = 1 << 20
	if n >= unit && n%unit == 0 {
		return fmt.Sprintf("%d MiB", n/unit)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (s *step) exit(status syscall.WaitStatus) {
	if status.Signaled() {
		s.signaled(status.Signal())
		return
	}
	code := status.ExitStatus()
	s.rec.Cause, s.rec.ExitCode = "code", &code
}

// signaled records the signal that ended the step's process.
func (s *step) signaled(sig syscall.Signal) {
	s.rec.Cause = "signal"
	if s.rec.Signal = unix.SignalName(sig); s.rec.Signal == "" {
		s.rec.Signal = fmt.Sprintf("signal %d", sig)
	}
}

func millis(t syscall.Timeval) int64 { return t.Nano() / int64(time.Millisecond) }

// spawn starts the process, with a record before and one after it.
func (s *step) spawn(env []string) (*child, []*capture, error) {
	r := s.r
	dir, argv := s.workdir(), s.argv()
	fail := func(err error) (*child, []*capture, error) {
		s.rec.Cause = "spawn"
		if why := (*stopped)(nil); errors.As(err, &why) {
			return nil, nil, why
		}
		return nil, nil, failed("SpawnError", "could not be started: %v", err)
	}
	if info, err := os.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("it does not exist")
		}
		return fail(fmt.Errorf("cannot use workdir %s: %w", dir, bare(err)))
	} else if !info.IsDir() {
		return fail(fmt.Errorf("cannot use workdir %s: it is not a directory", dir))
	}
	path, err := findCommand(argv[0], dir, env)
	if err != nil {
		return fail(err)
	}
	group, err := r.w.cgroups.make(r.id, s.Limits)
	if err != nil {
		if s.Limits != (Limits{}) || r.w.o.Cgroups == CgroupsOn {
			return fail(err)
		}
		r.log().Debug("step has no cgroup", "step", s.Name, "error", err)
	}
	out, outEnd, err := newPipe()
	if err != nil {
		group.remove()
		return fail(err)
	}
	defer unix.Close(outEnd)
	errs, errsEnd, err := newPipe()
	if err != nil {
		out.Close()
		group.remove()
		return fail(err)
	}
	defer unix.Close(errsEnd)
	if err = r.journal.spawning(s.label(), nil); err != nil {
		err = fmt.Errorf("its start cannot be recorded: %w", err)
	}
	r.w.at("spawning")
	var c *child
	if err == nil {
		c, err = r.w.startChild(r.id, path, argv, env, dir, outEnd, errsEnd, group, r.who)
	}
	if err != nil {
		out.Close()
		errs.Close()
		group.remove()
		return fail(spawnText(path, err))
	}
	r.w.at("forked")
	r.journal.spawned(s.label(), c.identity(), group.path())
	r.w.at("spawned")
	return c, []*capture{s.capture(state.Stdout, out), s.capture(state.Stderr, errs)}, nil
}

// spawnText says what an errno of execve means.
func spawnText(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("cannot run %s: its interpreter does not exist", path)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("cannot run %s: its arguments and environment are too long", path)
	case errors.As(err, new(syscall.Errno)):
		return fmt.Errorf("cannot run %s: %w", path, err)
	}
	return err
}

// capture starts to read a stream. closeStreams waits for it.
func (s *step) capture(stream string, f *os.File) *capture {
	c := s.newCapture(stream, f)
	s.begin(c)
	return c
}

func (s *step) newCapture(stream string, f *os.File) *capture {
	to := s.r.echo
	if s.heard != nil {
		to = s.heard
	}
	c := &capture{journal: s.r.journal, echo: to, step: s.label(), stream: stream, f: f, done: make(chan struct{}), cap: &s.r.output}
	if forms := s.r.secrets.now(); len(forms) > 0 {
		c.mask = &mask{forms: forms}
	}
	if also := s.r.w.o.Output; also != nil {
		c.also = also(Stream{Workspace: s.r.ws, Run: s.r.id, Key: s.r.launch.Key, Step: s.label(), Name: stream})
	}
	return c
}

func (s *step) begin(c *capture) {
	go func() { // closeStreams waits for it
		buf := s.r.w.bufs.Get().(*[captureBuffer]byte)
		c.run(buf[:])
		s.r.w.bufs.Put(buf)
		_ = c.f.Close()
	}()
}

// await waits until the main process has ended and the streams are closed, or have had their time for it. Where the
// step has to stop first it says why, and until when what is left has time to end by itself.
func (s *step) await(ctx context.Context, c *child, streams []*capture) (forced *stopped, killAt time.Time) {
	select {
	case <-c.exited:
	case <-ctx.Done():
		killAt = time.Now().Add(s.r.w.o.Grace)
		c.end(killAt)
		return asStopped(context.Cause(ctx)), killAt
	}
	// What the process has started may still be busy with its last output, as in `make > >(tee log)`.
	t := time.NewTimer(drainTime)
	defer t.Stop()
	for _, st := range streams {
		select {
		case <-st.done:
		case <-t.C:
			return nil, time.Time{}
		}
	}
	return nil, time.Time{}
}

// closeStreams lets the streams end, once nobody is left who should write. Whoever escaped and still holds them does not
// hold the run. An echo that nobody reads holds it only until it is made to stop: by what ended the step, or by a cancel of
// the run and the grace after that. A timeout is not for the reader of the echo. It is not whole where it gave up a stream.
func closeStreams(ctx context.Context, streams []*capture, forced bool, killAt time.Time, grace time.Duration) (whole bool) {
	for _, st := range streams {
		if !within(st.done, drainTime/10) {
			st.stop()
		}
	}
	whole = true
	for _, st := range streams {
		if !forced {
			select {
			case <-st.done:
				continue
			case <-ctx.Done():
				forced, killAt = true, time.Now().Add(grace)
			}
		}
		if !within(st.done, max(0, time.Until(killAt))+closeTime/4) {
			st.abandon()
			whole = false
		}
	}
	return whole
}

// within waits for done, but not longer than d.
func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// readResult reads a file a step may have written; nil where there is none. It waits for nobody: the step may have put
// anything in its place.
func readResult(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, bare(err)
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	if err != nil {
		return nil, bare(err)
	}
	if len(data) > maxResult {
		return nil, errors.New("it is larger than 1 MiB")
	}
	return data, nil
}

// resultValue is a result file's content: JSON if it is one value, else its text without the newline at its end, else
// nothing.
func resultValue(data []byte) jsontext.Value {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	v := jsontext.Value(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if v.IsValid() && !deep(v) {
		_ = v.Compact()
		return v
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	return b
}
