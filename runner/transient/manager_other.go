//go:build !linux

package transient

import (
	"context"
	"errors"
	"syscall"
)

// Manager stands for a service manager that is not there: every call is an error that says so.
type Manager struct{}

var errNone = errors.New("cannot run a unit: this system has no systemd")

// Open returns a Manager whose every call says that this system has no systemd.
func Open() *Manager { return &Manager{} }

// Close does nothing.
func (m *Manager) Close() {}

// Start is an error.
func (m *Manager) Start(context.Context, Spec) (State, error) { return State{}, errNone }

// Look is an error.
func (m *Manager) Look(context.Context, string) (State, error) { return State{}, errNone }

// Wait is an error.
func (m *Manager) Wait(context.Context, string) (State, error) { return State{}, errNone }

// Signal is an error.
func (m *Manager) Signal(context.Context, string, syscall.Signal) error { return errNone }

// Stop is an error.
func (m *Manager) Stop(context.Context, string) ([]string, error) { return nil, errNone }

// List is an error.
func (m *Manager) List(context.Context, string) ([]string, error) { return nil, errNone }

// Keeps is false.
func (m *Manager) Keeps(context.Context) bool { return false }
