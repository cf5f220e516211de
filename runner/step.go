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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"marbles/state"
)

// maxResult is how large a result file may be, in bytes.
const maxResult = 1 << 20

// steps does the steps one after the other; the first that does not complete ends the run.
func (r *Run) steps(ctx context.Context) *stopped {
	r.file.Steps = nil
	own := r.ownEnv()
	for name := range r.launch.Files {
		own = append(own, name+"="+r.filePath(name))
	}
	input := r.input
	for i, st := range r.launch.Workflow.Steps {
		s := &step{r: r, i: i, Step: st, rec: state.StepRecord{Name: st.Name, Status: state.Running}}
		if ctx.Err() != nil { // between two steps
			return s.ofRun(asStopped(context.Cause(ctx)))
		}
		s.rec.StartedAt = state.Millis(time.Now().UnixMilli())
		r.journal.line(st.Name, "started")
		why := s.do(ctx, own, input)
		s.finish(why)
		r.file.Steps = append(r.file.Steps, s.rec)
		if why != nil {
			return s.ofRun(why)
		}
		result := s.rec.Result
		if result == nil {
			result = jsontext.Value("null")
		}
		input = overlay(input, []member{{st.Name, result}})
	}
	return nil
}

// step is one step at work.
type step struct {
	Step
	r   *Run
	i   int
	rec state.StepRecord
}

// finish records how the step ended, in the run file and as a line of the journal.
func (s *step) finish(why *stopped) {
	s.rec.FinishedAt = state.Millis(time.Now().UnixMilli())
	if len(s.rec.Leftover) > 0 {
		s.r.journal.line(s.Name, "left processes behind, which were ended: "+strings.Join(s.rec.Leftover, ", "))
	}
	switch {
	case why == nil:
		s.rec.Status = state.Complete
		s.r.journal.line(s.Name, "complete")
	case why.status == state.Cancelled:
		s.rec.Status, s.rec.Error = state.Cancelled, &why.err
		s.r.journal.line(s.Name, "aborted")
	default:
		s.rec.Status, s.rec.Error = state.Failed, &why.err
		s.r.journal.line(s.Name, "failed: "+why.err.Message)
	}
}

// ofRun is a step's end as the end of the run: it names the step.
func (s *step) ofRun(why *stopped) *stopped {
	switch {
	case why.status == state.Cancelled:
		return why
	case why.whole:
		return failed(why.err.Name, "the run %s, in step %q", why.err.Message, s.Name)
	}
	return failed(why.err.Name, "step %q %s", s.Name, why.err.Message)
}

// workdir is where the step runs.
func (s *step) workdir() string {
	switch wf := s.r.launch.Workflow; {
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
	r := s.r
	prefix := filepath.Join(r.dir, strconv.Itoa(s.i))
	inputFile, resultFile := prefix+inputSuffix, prefix+"-result"
	clearInput, err := putInput(inputFile, object(input))
	if err != nil {
		return asStopped(fmt.Errorf("cannot get its input: %w", err))
	}
	defer clearInput()
	env := mergeEnv(r.w.env, r.launch.Workflow.Env, s.Env, r.launch.Env, own, []string{
		"MARBLES_STEP=" + s.Name, "MARBLES_INPUT_FILE=" + inputFile, "MARBLES_RESULT_FILE=" + resultFile,
	})
	why := s.process(ctx, env)
	if why != nil {
		return why
	}
	data, err := readResult(resultFile)
	if data != nil {
		defer os.Remove(resultFile)
	}
	if err != nil {
		return asStopped(fmt.Errorf("left a result that cannot be read: %w", err))
	}
	s.rec.Result = resultValue(data)
	return nil
}

// process starts the step's process, reads its output, and waits until all of it has ended.
func (s *step) process(ctx context.Context, env []string) *stopped {
	r := s.r
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, timedOut(s.Timeout))
		defer cancel()
	}
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
	if ended {
		s.exit(status)
	}
	if forced != nil {
		return forced
	}
	s.rec.Leftover = c.rest
	switch {
	case !ended:
		return failed("Error", "ended in a way that cannot be told")
	case status.Signaled():
		return failed("SignalError", "was ended by %s", s.rec.Signal)
	case status.ExitStatus() != 0:
		return failed("ExitError", "exited with code %d", status.ExitStatus())
	}
	return nil
}

func (s *step) exit(status syscall.WaitStatus) {
	if status.Signaled() {
		s.rec.Signal = unix.SignalName(status.Signal())
		if s.rec.Signal == "" {
			s.rec.Signal = fmt.Sprintf("signal %d", status.Signal())
		}
		return
	}
	code := status.ExitStatus()
	s.rec.ExitCode = &code
}

func millis(t syscall.Timeval) int64 { return t.Nano() / int64(time.Millisecond) }

// spawn starts the process, with a record before and one after it.
func (s *step) spawn(env []string) (*child, []*capture, error) {
	r := s.r
	dir, argv := s.workdir(), s.argv()
	fail := func(err error) (*child, []*capture, error) {
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
	out, outEnd, err := newPipe()
	if err != nil {
		return fail(err)
	}
	defer unix.Close(outEnd)
	errs, errsEnd, err := newPipe()
	if err != nil {
		out.Close()
		return fail(err)
	}
	defer unix.Close(errsEnd)
	if err = r.journal.spawning(s.Name); err != nil {
		err = fmt.Errorf("its start cannot be recorded: %w", err)
	}
	r.w.at("spawning")
	var c *child
	if err == nil {
		c, err = r.w.startChild(r.id, path, argv, env, dir, outEnd, errsEnd)
	}
	if err != nil {
		out.Close()
		errs.Close()
		return fail(spawnText(path, err))
	}
	r.w.at("forked")
	r.journal.spawned(s.Name, c.identity())
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
	c := &capture{journal: s.r.journal, echo: s.r.echo, step: s.Name, stream: stream, f: f, done: make(chan struct{})}
	go func() {
		buf := s.r.w.bufs.Get().(*[captureBuffer]byte)
		c.run(buf[:])
		s.r.w.bufs.Put(buf)
		_ = f.Close()
	}()
	return c
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
