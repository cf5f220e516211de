//go:build !linux

package runner

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// cgroups are Linux's. Elsewhere a step has its process group, and no limits.
type cgroups struct{ visits atomic.Bool }

type cgroup struct{}

func newCgroups(string) *cgroups { return &cgroups{} }

func (g *cgroups) make(_ string, l Limits) (*cgroup, error) {
	if l == (Limits{}) {
		return nil, nil
	}
	return nil, failed("LimitError", "could not be started: %v", fmt.Errorf("cannot limit it: %w", errors.New("this system has no cgroups")))
}

func (g *cgroups) ofRun(string, []string) []string { return nil }

func (c *cgroup) attr(*syscall.SysProcAttr) {}
func (c *cgroup) kill()                     {}
func (c *cgroup) visit() (back func())      { return func() {} }
func (c *cgroup) remove()                   {}
func (c *cgroup) path() string              { return "" }

func (c *cgroup) usage() (user, system time.Duration, memory int64, oom bool, ok bool) {
	return 0, 0, 0, false, false
}

func cgroupMembers(string) []proc { return nil }
func removeCgroup(string)         {}
