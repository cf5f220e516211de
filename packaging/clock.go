package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Roll is a service of systemd that does one tick of a key. It runs as the packaged service does: what that one's unit says of
// its user, its sandbox and its directories is said here too.
type Roll struct {
	User        bool // for the manager of a user; else the system's
	Description string
	Command     []string // a program with an absolute path, and its arguments
	// Waits says that the command waits until the key is due, so that systemd must not count that as starting.
	Waits bool
	Stop  time.Duration // from SIGTERM to SIGKILL; 0: as packaged
}

// Timer is the timer of a Roll.
type Timer struct {
	Description string
	Service     string   // the unit that it starts
	OnCalendar  []string // or
	Every       time.Duration
	Persistent  bool
	Jitter      time.Duration
}

// notForRoll are directives of the packaged service that are about a service that stays, by their beginnings.
// RuntimeDirectory= is among them because the first of two units to stop takes it from the other.
var notForRoll = []string{
	"Description=", "Documentation=", "Type=", "NotifyAccess=", "Exec", "Restart", "Watchdog", "Timeout", "RuntimeDirectory", "Reload",
	"Sockets=", "FileDescriptorStore", "PIDFile=", "User=", "Group=", "RemainAfterExit=",
}

// RenderRoll is the unit of a Roll.
func RenderRoll(r Roll) ([]byte, error) {
	command, err := commandLine(r.Command)
	if err != nil {
		return nil, fmt.Errorf("cannot render %s: %w", r.Description, err)
	}
	if err := text(r.Description); err != nil {
		return nil, fmt.Errorf("cannot render %q: it %w", r.Description, err)
	}
	file, kind := "systemd/marbles.service", "oneshot"
	if r.User {
		file = "systemd/user/marbles.service"
	}
	if r.Waits {
		kind = "exec"
	}
	own := map[string][]string{
		"[Unit]": {"Description=" + unitText(r.Description)},
		"[Service]": {
			"Type=" + kind,
			"ExecStart=" + command,
			"# A run takes as long as it takes; its steps have their own limits.",
			"TimeoutStartSec=infinity",
			"TimeoutStopSec=" + seconds(max(r.Stop, 75*time.Second)),
		},
	}
	if !r.User {
		own["[Service]"] = append(own["[Service]"], "# The user of the packaged service, to which the state belongs.", "User=marbles")
	}
	var b bytes.Buffer
	b.WriteString("# One tick of a key. Written by `marbles systemd install`, and taken away by `marbles systemd uninstall`.\n" +
		"# What it needs beyond this goes into a drop-in; those in marbles-.service.d are for every key.\n\n")
	var comment []string
	packaged := string(read(file)) // from its first section on: what stands before is about the service itself
	for line := range strings.SplitSeq(strings.TrimRight(packaged[strings.Index(packaged, "[Unit]"):], "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			comment = append(comment, line)
		case line == "[Install]": // a timer starts it
			return fewerBlanks(b.Bytes()), nil
		case strings.HasPrefix(line, "["):
			comment = nil
			b.WriteString(line + "\n" + strings.Join(own[line], "\n") + "\n")
		case slices.ContainsFunc(notForRoll, func(p string) bool { return strings.HasPrefix(line, p) }):
			comment = nil
		default:
			for _, c := range append(comment, line) {
				b.WriteString(c + "\n")
			}
			comment = nil
		}
	}
	return fewerBlanks(b.Bytes()), nil
}

// fewerBlanks leaves one empty line where there are several, and none at the end.
func fewerBlanks(text []byte) []byte {
	for bytes.Contains(text, []byte("\n\n\n")) {
		text = bytes.ReplaceAll(text, []byte("\n\n\n"), []byte("\n\n"))
	}
	return append(bytes.TrimSpace(text), '\n')
}

// RenderTimer is the unit of a Timer.
func RenderTimer(t Timer) ([]byte, error) {
	for _, s := range append([]string{t.Description, t.Service}, t.OnCalendar...) {
		if err := text(s); err != nil {
			return nil, fmt.Errorf("cannot render the timer of %s: %q %w", t.Service, s, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[Unit]\nDescription=%s\n\n[Timer]\nUnit=%s\n", unitText(t.Description), unitText(t.Service))
	for _, c := range t.OnCalendar {
		fmt.Fprintf(&b, "OnCalendar=%s\n", unitText(c))
	}
	if t.Every > 0 {
		b.WriteString("# Counted from the end of the last run. The other two start it after a boot and after a sleep, which systemd's clock\n" +
			"# does not outlive: it then waits by itself until the key is due.\n")
		fmt.Fprintf(&b, "OnUnitInactiveSec=%s\nOnActiveSec=10s\nOnClockChange=yes\n", seconds(t.Every))
	}
	if len(t.OnCalendar) > 0 {
		fmt.Fprintf(&b, "Persistent=%t\n", t.Persistent)
	}
	if t.Jitter > 0 {
		fmt.Fprintf(&b, "RandomizedDelaySec=%s\n", seconds(t.Jitter))
	}
	b.WriteString("AccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n")
	return []byte(b.String()), nil
}

// UnitName is the part of a unit's name that stands for a text, which is escaped as systemd-escape(1) does, but for the
// dash. Different texts have different names, where they hold no backslash.
func UnitName(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.-"
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(plain, text[i]) >= 0 {
			b.WriteByte(text[i])
		} else {
			fmt.Fprintf(&b, `\x%02x`, text[i])
		}
	}
	return b.String()
}

// commandLine writes an ExecStart=.
func commandLine(words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("there is no command")
	}
	if err := check(words[0]); err != nil {
		return "", fmt.Errorf("the program %q %w", words[0], err)
	}
	if strings.ContainsAny(words[0], `"'\`) {
		return "", fmt.Errorf("systemd runs no program with a quote or backslash in its path: %q", words[0])
	}
	line := []string{unitPath(words[0])}
	for _, w := range words[1:] {
		if err := text(w); err != nil {
			return "", fmt.Errorf("the argument %q %w", w, err)
		}
		if w == "" {
			return "", errors.New("an argument is empty")
		}
		line = append(line, unitWord(w))
	}
	return strings.Join(line, " "), nil
}

// text refuses what a line of a unit, or XML, cannot hold.
func text(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\ufffe' || r == '\uffff' }):
		return errors.New("holds a control character")
	}
	return nil
}

// unitText writes a value that is a text: % starts a specifier, and a backslash at the end would join the next line.
func unitText(s string) string {
	return strings.TrimRight(strings.ReplaceAll(s, "%", "%%"), `\`)
}

// seconds writes a duration for systemd, rounded up to its second.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + "s"
}
