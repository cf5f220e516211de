package service

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifier speaks the sd_notify protocol. Without a socket every call does nothing. It is safe for concurrent use.
type notifier struct {
	log  *slog.Logger
	tell func(message string) error

	mu   sync.Mutex // guards last, and orders what is sent
	last string     // the last status line sent
}

func newNotifier(log *slog.Logger) *notifier {
	return &notifier{log: log, tell: func(message string) error {
		_, err := daemon.SdNotify(false, message)
		return err
	}}
}

// send sends assignments, one a line. A status line is one line, whatever is in it.
func (n *notifier) send(status string, assignments ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if status != "" {
		n.last = strings.Join(strings.FieldsFunc(status, func(r rune) bool { return r < ' ' }), " ")
		assignments = append(assignments, "STATUS="+n.last)
	}
	if err := n.tell(strings.Join(assignments, "\n")); err != nil {
		n.log.Warn("cannot notify the service manager", "error", err)
	}
}

func (n *notifier) ready(status string) { n.send(status, daemon.SdNotifyReady) }

// reloading must carry the monotonic time at which it was sent, for Type=notify-reload: the manager takes READY=1 as the end
// of the reload that it asked for only where that is not older than its asking.
func (n *notifier) reloading(status string) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		n.log.Warn("cannot read the monotonic clock", "error", err)
		n.send(status, daemon.SdNotifyReloading)
		return
	}
	n.send(status, daemon.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000))
}

func (n *notifier) stopping(status string) { n.send(status, daemon.SdNotifyStopping, extension()) }

// extend asks the manager to wait for another extendFor, counted from now, before it gives a start or a stop up.
func (n *notifier) extend(status string) { n.send(status, extension()) }

// How often more time is asked for, and how much each time: one that is late does no harm.
const (
	extendEvery = 5 * time.Second
	extendFor   = 20 * time.Second
)

func extension() string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendFor.Microseconds()) }

// status sends the line when it changed.
func (n *notifier) status(line string) {
	n.mu.Lock()
	same := line == n.last
	n.mu.Unlock()
	if !same {
		n.send(line)
	}
}

func (n *notifier) feed() { n.send("", daemon.SdNotifyWatchdog) }

// watchdog is the interval after which the manager ends a service that was not fed; 0 for none.
func (n *notifier) watchdog() time.Duration {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("cannot read the watchdog's interval", "error", err)
		return 0
	}
	return every
}
