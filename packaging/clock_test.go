package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var roll = []string{"/usr/bin/marbles", "--config", "/etc/marbles/marbles.yaml", "--state", `/var/lib/$a %b "c" 'd' \e`, "roll", "--due", "a key"}

// TestRollRunsAsThePackagedServiceDoes: what that one's unit says of its user, its sandbox and its directories is said
// of a key's too, and nothing of what makes it a service that stays.
func TestRollRunsAsThePackagedServiceDoes(t *testing.T) {
	for _, user := range []bool{false, true} {
		name := System
		if user {
			name = User
		}
		text, err := RenderRoll(Roll{User: user, Description: "50% of a key", Command: roll})
		if err != nil {
			t.Fatal(err)
		}
		unit := string(text)
		for l := range strings.Lines(strings.Split(render(t, name, Values{}), "[Install]")[0]) {
			key, _, ok := strings.Cut(l, "=")
			if !ok || strings.HasPrefix(l, "#") || strings.Contains(unit, "\n"+l) {
				continue
			}
			dropped := false
			for _, p := range notForRoll {
				dropped = dropped || strings.HasPrefix(l, p)
			}
			if !dropped {
				t.Errorf("%s: %s= of the service is missing: %s", name, key, l)
			}
		}
		for _, l := range []string{"Type=notify", "Restart", "WatchdogSec", "ExecReload", "RuntimeDirectory", "[Install]", "NotifyAccess"} {
			if strings.Contains(unit, "\n"+l) {
				t.Errorf("%s: it has %s", name, l)
			}
		}
		for key, want := range map[string]string{
			"Type": "oneshot", "TimeoutStartSec": "infinity", "TimeoutStopSec": "75s", "StartLimitIntervalSec": "0", "KillMode": "mixed",
			"Description": "50%% of a key",
			"ExecStart":   `/usr/bin/marbles --config /etc/marbles/marbles.yaml --state "/var/lib/$$a %%b \"c\" 'd' \\e" roll --due "a key"`,
		} {
			if got := line(t, unit, key); got != want {
				t.Errorf("%s: %s=%s, want %s", name, key, got, want)
			}
		}
		if !user && (line(t, unit, "User") != "marbles" || line(t, unit, "DynamicUser") != "yes") {
			t.Error("it does not run as the packaged service does")
		}
	}
	text, err := RenderRoll(Roll{Command: roll, Waits: true, Stop: 100 * time.Second})
	if err != nil || line(t, string(text), "Type") != "exec" || line(t, string(text), "TimeoutStopSec") != "100s" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestTimer(t *testing.T) {
	slots, err := RenderTimer(Timer{Description: "a", Service: `marbles-a\x20b.service`, OnCalendar: []string{"*-*-01 02:00:00 UTC", "Mon *-*-* 02:00:00 UTC"}, Persistent: true, Jitter: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Unit=marbles-a\\x20b.service\n", "OnCalendar=*-*-01 02:00:00 UTC\nOnCalendar=Mon", "Persistent=true\n", "RandomizedDelaySec=2s\n", "AccuracySec=1s\n", "WantedBy=timers.target\n"} {
		if !strings.Contains(string(slots), want) {
			t.Errorf("no %q in\n%s", want, slots)
		}
	}
	interval, err := RenderTimer(Timer{Description: "a", Service: "marbles-a.service", Every: 90 * time.Second})
	if err != nil || line(t, string(interval), "OnUnitInactiveSec") != "90s" || strings.Contains(string(interval), "Persistent") {
		t.Errorf("%s, %v", interval, err)
	}
}

func TestClockRefuses(t *testing.T) {
	for name, r := range map[string]Roll{
		"newline":        {Command: []string{"/usr/bin/marbles", "a\nExecStartPre=/bin/evil"}},
		"description":    {Description: "a\nExecStartPre=/bin/evil", Command: roll},
		"relative":       {Command: []string{"marbles"}},
		"quoted program": {Command: []string{`/usr/bin/"marbles"`}},
		"empty":          {},
		"empty argument": {Command: []string{"/usr/bin/marbles", ""}},
		"not UTF-8":      {Command: []string{"/usr/bin/marbles", "\xff"}},
	} {
		if text, err := RenderRoll(r); err == nil {
			t.Errorf("%s: rendered\n%s", name, text)
		}
	}
	if text, err := RenderTimer(Timer{Service: "a.service", OnCalendar: []string{"daily\nUnit=evil.service"}}); err == nil {
		t.Errorf("rendered\n%s", text)
	}
}

func TestUnitName(t *testing.T) {
	for text, want := range map[string]string{
		"backup": "backup", "shout-1a2b3c4d": "shout-1a2b3c4d", "a b": `a\x20b`, "a@b": `a\x40b`, "é": `\xc3\xa9`, "50%": `50\x25`, "a.v2:x_y": "a.v2:x_y",
	} {
		if got := UnitName(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestClockVerifies lays out a machine with a key's timer and service, and asks systemd.
func TestClockVerifies(t *testing.T) {
	service, err := RenderRoll(Roll{Description: "50% of a key", Command: roll})
	if err != nil {
		t.Fatal(err)
	}
	waits, err := RenderRoll(Roll{Description: "a", Command: roll, Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		timer   Timer
		service []byte
	}{
		"slots": {Timer{Description: "the clock of 50%", OnCalendar: []string{"*-*-* *:00,20,40:00 UTC", "Mon..Wed,Fri *-01..03-* 09..17:00:00 Europe/Berlin"}, Persistent: true, Jitter: time.Minute}, service},
		"every": {Timer{Description: "a", Every: 7 * 24 * time.Hour}, waits},
	} {
		t.Run(name, func(t *testing.T) {
			root, unit := t.TempDir(), "marbles-"+UnitName("a key")
			tt.timer.Service = unit + ".service"
			timer, err := RenderTimer(tt.timer)
			if err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{
				"/usr/bin/marbles":                       []byte("#!/bin/sh\n"),
				"/etc/systemd/system/" + unit + ".timer": timer, "/etc/systemd/system/" + unit + ".service": tt.service,
			}
			for _, target := range []string{"sysinit", "basic", "shutdown", "network-online", "time-sync", "nss-user-lookup", "timers"} {
				files["/etc/systemd/system/"+target+".target"] = []byte("[Unit]\nDescription=" + target + "\n")
			}
			for name, data := range files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				mode := os.FileMode(0o644)
				if filepath.Ext(name) == "" {
					mode = 0o755
				}
				if err := os.WriteFile(path, data, mode); err != nil {
					t.Fatal(err)
				}
			}
			if err := verify(t, "--root="+root, unit+".timer", unit+".service"); err != nil {
				t.Error(err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "marbles-a.service")
	if err := os.WriteFile(path, service, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := systemdAnalyze(t, "security", "--offline=true", "--threshold=30", "--no-pager", path); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
