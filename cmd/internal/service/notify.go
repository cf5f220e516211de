package service

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifier speaks the sd_notify protocol. Without a socket every call does nothing.
type notifier struct {
	log  *slog.Logger
	last string // the last status line sent
}

func newNotifier(log *slog.Logger) *notifier { return &notifier{log: log} }

func (n *notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("cannot notify the service manager", "error", err)
	}
}

func (n *notifier) ready(status string) {
	n.last = status
	n.send(daemon.SdNotifyReady + "\nSTATUS=" + status)
}

// reloading must carry the monotonic time at which it was sent, for Type=notify-reload.
func (n *notifier) reloading() {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		n.send(daemon.SdNotifyReloading)
		return
	}
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, ts.Nano()/1000))
}

// stopping also asks for the time that draining may take.
func (n *notifier) stopping(most time.Duration) {
	n.send(fmt.Sprintf("%s\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (most + 5*time.Second).Microseconds()))
}

// status sends the line when it changed.
func (n *notifier) status(line string) {
	if line == n.last {
		return
	}
	n.last = line
	n.send("STATUS=" + line)
}

func (n *notifier) feed() { n.send(daemon.SdNotifyWatchdog) }

// watchdog ticks three times per watchdog interval; it never ticks where there is none.
func (n *notifier) watchdog() (<-chan time.Time, func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("cannot read the watchdog's interval", "error", err)
	}
	if err != nil || every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every / 3)
	return t.C, t.Stop
}
