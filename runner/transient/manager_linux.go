package transient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

const (
	// A manager is away for a moment in daemon-reexec.
	reconnectTime = 20 * time.Second // how long one that was there is waited for
	connectTime   = 5 * time.Second  // how long one that was not seen yet is
	pollTime      = time.Second      // how often a unit is looked at without a signal
)

var errNotBooted = errors.New("cannot reach the service manager: this system was not started by systemd")

// Manager is the service manager that runs this process's services, as a D-Bus peer. It is safe for concurrent use.
type Manager struct {
	places []place
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	hear   sync.WaitGroup

	connecting chan struct{} // has room while nobody connects

	mu   sync.Mutex
	link *link // the last connection, perhaps lost
	// lower says that the manager is pid 1 and this process is not root: what it starts for us must not be root either.
	lower   bool
	waiting map[godbus.ObjectPath]map[chan struct{}]bool // by the unit's path
}

// A place is where a manager may listen.
type place struct {
	address string
	bus     bool // a message bus with the manager on it, and not the manager itself
}

// A link is one connection. go-systemd makes two sockets of it, one for signals.
type link struct {
	*dbus.Conn
	raw *godbus.Conn // for what go-systemd has no call for
}

// Open returns the manager that runs this process's services, and connects at first use: for root pid 1, directly or
// over the system bus; for another user that user's own manager, or pid 1 where the process was started by that and not
// in a session of the user.
func Open() *Manager {
	m := &Manager{connecting: make(chan struct{}, 1), waiting: map[godbus.ObjectPath]map[chan struct{}]bool{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	run := os.Getenv("XDG_RUNTIME_DIR")
	switch {
	case os.Geteuid() == 0:
		m.places = []place{{"unix:path=/run/systemd/private", false}, systemBus()}
	case run == "":
		m.places, m.lower = []place{systemBus()}, true
	default:
		m.places = []place{{at(run + "/systemd/private"), false}}
		if a := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" {
			m.places = append(m.places, place{a, true})
		} else {
			m.places = append(m.places, place{at(run + "/bus"), true})
		}
	}
	return m
}

func systemBus() place {
	if a := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); a != "" {
		return place{a, true}
	}
	return place{"unix:path=/run/dbus/system_bus_socket", true}
}

func at(path string) string { return "unix:path=" + godbus.EscapeBusAddressValue(path) }

// Close ends the connection, and what waits on it.
func (m *Manager) Close() {
	m.cancel()
	m.hear.Wait()
}

// connection returns a living connection. One that was lost is made again, for as long as a manager needs to start anew.
func (m *Manager) connection(ctx context.Context) (*link, error) {
	select {
	case m.connecting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.connecting }()
	if m.ctx.Err() != nil {
		return nil, errors.New("cannot reach the service manager: it was closed")
	}
	m.mu.Lock()
	l := m.link
	m.mu.Unlock()
	if l != nil && l.Connected() {
		return l, nil
	}
	wait := connectTime
	if l != nil {
		wait = reconnectTime
	}
	until := time.Now().Add(wait)
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		l, err := m.connect(ctx)
		if err == nil {
			m.mu.Lock()
			m.link = l
			m.mu.Unlock()
			return l, nil
		}
		if errors.Is(err, errNotBooted) || time.Now().After(until) || !m.pause(ctx, pause) {
			return nil, err
		}
	}
}

func (m *Manager) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-m.ctx.Done():
	}
	return false
}

func (m *Manager) connect(ctx context.Context) (*link, error) {
	var errs []error
	for _, p := range m.places {
		l, err := m.connectTo(ctx, p)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("cannot reach the service manager: %w", ctx.Err())
		}
		errs = append(errs, err)
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, errNotBooted
	}
	return nil, fmt.Errorf("cannot reach the service manager: %w", errors.Join(errs...))
}

func (m *Manager) connectTo(ctx context.Context, p place) (*link, error) {
	lost, lose := context.WithCancel(m.ctx)
	stop := context.AfterFunc(ctx, lose) // until it is there
	defer stop()
	var raw []*godbus.Conn // one for calls, one for signals
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		c, err := godbus.Dial(p.address, godbus.WithContext(lost))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(c.Context(), lose) // one socket without the other is of no use
		err = c.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))})
		if err == nil && p.bus {
			err = c.Hello()
		}
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		raw = append(raw, c)
		return c, nil
	})
	if err == nil {
		if err = conn.Subscribe(); err != nil {
			conn.Close()
		}
	}
	if err != nil {
		lose()
		return nil, fmt.Errorf("%s: %w", strings.TrimPrefix(p.address, "unix:path="), err)
	}
	// go-systemd's own subscriptions read what they are set to without a lock.
	signals := make(chan *godbus.Signal, 64)
	raw[1].Signal(signals)
	m.hear.Go(func() {
		for open := true; open; {
			select {
			case s, ok := <-signals:
				if open = ok; ok {
					m.wake(s)
				}
			case <-lost.Done():
				open = false
			}
		}
		lose()
		conn.Close()
		m.wake(nil)
	})
	return &link{conn, raw[0]}, nil
}

// wake has those who wait for a unit that a signal is about look again, or all, where there is none.
func (m *Manager) wake(s *godbus.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == nil {
		for _, waiting := range m.waiting {
			wake(waiting)
		}
		return
	}
	wake(m.waiting[s.Path])
	if s.Name == "org.freedesktop.systemd1.Manager.UnitRemoved" && len(s.Body) == 2 {
		path, _ := s.Body[1].(godbus.ObjectPath)
		wake(m.waiting[path])
	}
}

func wake(waiting map[chan struct{}]bool) {
	for c := range waiting {
		select {
		case c <- struct{}{}:
		default: // it is about to look
		}
	}
}

// changed returns a channel that is sent to when a unit may have changed, until the function is called.
func (m *Manager) changed(name string) (<-chan struct{}, func()) {
	path := godbus.ObjectPath("/org/freedesktop/systemd1/unit/" + dbus.PathBusEscape(name))
	c := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[path] == nil {
		m.waiting[path] = map[chan struct{}]bool{}
	}
	m.waiting[path][c] = true
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiting[path], c)
		if len(m.waiting[path]) == 0 {
			delete(m.waiting, path)
		}
	}
}

// do asks the manager something that may be asked again when its answer was lost.
func (m *Manager) do(ctx context.Context, ask func(*link) error) error {
	for turn := 1; ; turn++ {
		l, err := m.connection(ctx)
		if err != nil {
			return err
		}
		err = ask(l)
		if err == nil || turn == 20 || ctx.Err() != nil || !unanswered(l, err) || !m.pause(ctx, 20*time.Millisecond*time.Duration(turn)) {
			return err
		}
	}
}

// unanswered reports whether a call failed because the manager went away, or the bus lost it for a moment.
func unanswered(l *link, err error) bool {
	var broken *net.OpError
	if errors.As(err, &broken) || errors.Is(err, io.EOF) {
		l.Close() // it may not have seen it itself yet
	}
	return errors.Is(err, godbus.ErrClosed) || !l.Connected() ||
		is(err, "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Disconnected",
			"org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.ServiceUnknown")
}

// is reports whether an error is one of these of D-Bus.
func is(err error, names ...string) bool {
	var e godbus.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range names {
		if e.Name == n {
			return true
		}
	}
	return false
}

func isNoUnit(err error) bool { return is(err, "org.freedesktop.systemd1.NoSuchUnit") }

// Signal sends a signal to all processes of a unit. Where there is none that is no error.
func (m *Manager) Signal(ctx context.Context, name string, sig syscall.Signal) error {
	err := m.do(ctx, func(c *link) error { return c.KillUnitWithTarget(ctx, name, dbus.All, int32(sig)) })
	if err == nil || isNoUnit(err) || is(err, "org.freedesktop.systemd1.NoSuchProcess", "org.freedesktop.DBus.Error.UnixProcessIdUnknown") {
		return nil
	}
	return fmt.Errorf("cannot send %v to unit %s: %w", sig, name, err)
}

// List returns the names of the loaded units that fit a shell pattern.
func (m *Manager) List(ctx context.Context, pattern string) ([]string, error) {
	var units []dbus.UnitStatus
	err := m.do(ctx, func(c *link) (err error) {
		units, err = c.ListUnitsByPatternsContext(ctx, []string{}, []string{pattern})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list units %s: %w", pattern, err)
	}
	var names []string
	for _, u := range units {
		if u.LoadState != "not-found" {
			names = append(names, u.Name)
		}
	}
	return names, nil
}

// Keeps reports whether the runtime directory of the unit that this process runs in is kept when that stops
// (RuntimeDirectoryPreserve=yes), so that what a step has open there is still there for whoever comes next.
func (m *Manager) Keeps(ctx context.Context) bool {
	keeps := false
	_ = m.do(ctx, func(c *link) error {
		name, err := c.GetUnitNameByPID(ctx, uint32(os.Getpid()))
		if err != nil {
			return err
		}
		p, err := c.GetServicePropertyContext(ctx, name, "RuntimeDirectoryPreserve")
		if err != nil {
			return err
		}
		s, _ := p.Value.Value().(string)
		keeps = s == "yes"
		return nil
	})
	return keeps
}
