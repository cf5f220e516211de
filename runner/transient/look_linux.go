package transient

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// view is a State, and what else there is to know between states.
type view struct {
	State
	active string // systemd's ActiveState
	job    bool   // something is to be done with it still
}

// Look tells a unit's state. A unit that is not loaded has the zero State, which is no error.
func (m *Manager) Look(ctx context.Context, name string) (State, error) {
	v, err := m.look(ctx, name)
	return v.State, err
}

func (m *Manager) look(ctx context.Context, name string) (view, error) {
	var p properties
	err := m.do(ctx, func(c *link) (err error) {
		p, err = c.GetAllPropertiesContext(ctx, name)
		return err
	})
	if isNoUnit(err) {
		return view{}, nil
	}
	if err != nil {
		return view{}, fmt.Errorf("cannot look at unit %s: %w", name, err)
	}
	return p.view(), nil
}

// The codes of waitid(2), which systemd keeps.
const (
	exited = 1
	killed = 2
	dumped = 3
)

// properties are a unit's, as D-Bus has them.
type properties map[string]any

func (p properties) view() view {
	if p.text("LoadState") == "not-found" {
		return view{}
	}
	v := view{active: p.text("ActiveState"), job: p.job()}
	v.Loaded = true
	v.MainPID = int(p.number("MainPID"))
	v.Running = v.MainPID != 0
	v.Cgroup = strings.TrimPrefix(p.text("ControlGroup"), "/")
	v.Result = p.text("Result")
	v.StateChanged = instant(p.number("StateChangeTimestamp"))
	code, status := p.signed("ExecMainCode"), int(p.signed("ExecMainStatus"))
	switch {
	case v.Running:
	case code == exited:
		v.Ended, v.ExitCode = true, status
	case code == killed || code == dumped:
		v.Ended, v.ExitCode, v.Signal = true, -1, syscall.Signal(status)
	case v.active == "failed":
		v.Ended, v.ExitCode = true, -1
	}
	if at := p.number("ExecMainExitTimestamp"); v.Ended && at != 0 {
		v.StateChanged = instant(at)
	}
	if ns := p.number("CPUUsageNSec"); ns != math.MaxUint64 {
		v.CPU = time.Duration(ns)
	}
	if n, ok := p["MemoryPeak"].(uint64); ok && n != math.MaxUint64 {
		v.MemoryPeak = int64(n)
	}
	if id, _ := p["InvocationID"].([]byte); len(id) > 0 {
		v.InvocationID = fmt.Sprintf("%x", id)
	}
	v.account()
	return v
}

// account adds what the control group tells, and the manager does not.
func (v *view) account() {
	if v.Cgroup == "" {
		return
	}
	dir := filepath.Join(cgroupRoot, v.Cgroup)
	text, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "user_usec":
			v.User = time.Duration(n) * time.Microsecond
		case "system_usec":
			v.System = time.Duration(n) * time.Microsecond
		}
	}
	if v.CPU == 0 {
		v.CPU = v.User + v.System
	}
	if v.MemoryPeak == 0 {
		text, _ := os.ReadFile(filepath.Join(dir, "memory.peak"))
		v.MemoryPeak, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
}

// keep takes over what an earlier look has seen of a control group that is gone.
func (v *view) keep(last view) {
	if v.Cgroup == "" && v.InvocationID == last.InvocationID {
		v.User, v.System, v.MemoryPeak = last.User, last.System, max(v.MemoryPeak, last.MemoryPeak)
	}
}

func (p properties) text(name string) string {
	s, _ := p[name].(string)
	return s
}

func (p properties) number(name string) uint64 {
	switch n := p[name].(type) {
	case uint64:
		return n
	case uint32:
		return uint64(n)
	}
	return 0
}

func (p properties) signed(name string) int32 {
	n, _ := p[name].(int32)
	return n
}

// job reads the property Job, a number and a path: 0 where nothing is to be done.
func (p properties) job() bool {
	pair, _ := p["Job"].([]any)
	if len(pair) == 0 {
		return false
	}
	id, _ := pair[0].(uint32)
	return id != 0
}

func instant(usec uint64) time.Time {
	if usec == 0 || usec > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(int64(usec))
}

// Wait returns once a unit's main process has ended, or the unit is gone, which is the zero State. It sleeps until the
// manager tells of a change, and looks now and then anyway: what is told while the connection is lost is never told again.
func (m *Manager) Wait(ctx context.Context, name string) (State, error) {
	v, err := m.until(ctx, name, func(v view) bool {
		return !v.Loaded || v.Ended || v.active == "inactive" && !v.job
	})
	return v.State, err
}

// until looks at a unit at each change until it is as wanted.
func (m *Manager) until(ctx context.Context, name string, wanted func(view) bool, also ...<-chan string) (view, error) {
	change, done := m.changed(name)
	defer done()
	t := time.NewTimer(pollTime)
	defer t.Stop()
	var job <-chan string
	if len(also) > 0 {
		job = also[0]
	}
	var last view
	for {
		v, err := m.look(ctx, name)
		v.keep(last)
		last = v
		if err != nil || wanted(v) {
			return v, err
		}
		t.Reset(pollTime)
		select {
		case <-change:
		case <-job:
			job = nil
		case <-t.C:
		case <-ctx.Done():
			return v, fmt.Errorf("cannot wait for unit %s: %w", name, ctx.Err())
		case <-m.ctx.Done():
			return v, fmt.Errorf("cannot wait for unit %s: the manager was closed", name)
		}
	}
}
