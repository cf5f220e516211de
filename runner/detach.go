package runner

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"marbles/state"
)

// HandOver writes a run down as queued for another process, its owner, to start. The input is checked first; nothing is
// written where it is not what the workflow takes.
func (w *Worker) HandOver(l Launch, owner state.Process) (id string, err error) {
	input, err := launchInput(l.Workflow.Input, l.Input)
	if err != nil {
		return "", fmt.Errorf("cannot start %s: %w", l.Workflow.Name, err)
	}
	if l.Workflow.Schema != nil {
		if err := l.Workflow.Schema.Validate(object(input)); err != nil {
			return "", fmt.Errorf("cannot start %s: input does not fit its input_schema: %w", l.Workflow.Name, err)
		}
	}
	now := time.Now()
	if l.RunID == "" {
		l.RunID = state.NewRunID(now)
	}
	r := &Run{w: w, id: l.RunID, ws: l.Workspace, launch: l, input: input}
	err = l.Workspace.HandOver(r.newFile(now), owner, state.Request{
		Version: 1, Run: r.id, Action: state.ActionStart, At: state.Stamp{Time: now},
	})
	if err != nil {
		return "", fmt.Errorf("cannot start %s: %w", l.Workflow.Name, err)
	}
	return r.id, nil
}

// Background is a process that goes on by itself, in a session of its own, after the one that started it has ended.
type Background struct {
	Argv []string
	Env  []string
	Dir  string
	// Ready is asked every few milliseconds whether it is on its way.
	Ready func() (bool, error)
}

// detachPoll is how often Ready is asked.
const detachPoll = 10 * time.Millisecond

// Ended is how a background process ended that was not ready before.
type Ended struct {
	Code int
	Said string // what it wrote to stderr
}

// Start starts the process and returns nil when it is ready, or how it ended before. Where ctx ends first, the process is
// left to itself.
func (b Background) Start(ctx context.Context) (*Ended, error) {
	cmd := exec.Command(b.Argv[0], b.Argv[1:]...)
	cmd.Env, cmd.Dir = b.Env, b.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said := &head{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a background process: %w", err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process, or with this one: then nobody hears what the other says
		defer close(ended)
		_ = cmd.Wait() // its exit code is in ProcessState
	}()
	look := time.NewTicker(detachPoll)
	defer look.Stop()
	for {
		over := false
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ended:
			over = true
		}
		if ok, err := b.Ready(); ok || err != nil {
			return nil, err
		}
		if over {
			return &Ended{Code: cmd.ProcessState.ExitCode(), Said: said.String()}, nil
		}
	}
}

// head keeps the beginning of what is written to it.
type head struct{ bytes.Buffer }

const headBytes = 64 << 10

func (h *head) Write(b []byte) (int, error) {
	h.Buffer.Write(b[:min(len(b), headBytes-h.Len())])
	return len(b), nil
}
