package packaging

import (
	"errors"
	"fmt"
	"strings"
)

// Agent is a job of launchd that does one tick of a key. It is never started by being loaded.
type Agent struct {
	Label     string
	Command   []string // a program with an absolute path, and its arguments
	Directory string   // that it runs in
	Log       string   // the file that gets its output; launchd makes no folders
	// Every is the seconds between two starts, or Calendar the wall times in the machine's zone.
	Every    int
	Calendar []WallTime
	Stop     int // seconds from SIGTERM to SIGKILL; 0: 75
}

// WallTime is an entry of StartCalendarInterval; a field that is -1 is any.
type WallTime struct{ Minute, Hour, Day, Weekday, Month int }

// Daemon is the service of a whole Mac.
type Daemon struct {
	Command   []string
	Directory string
	Log       string
}

// LaunchdLabel is the label of the service's job; that of a key is this, a dot, and the key.
const LaunchdLabel = "com.foundry.marbles"

// launchdPath is better than launchd's own, which lacks the folders of package managers.
const launchdPath = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// RenderAgent is the property list of an Agent.
func RenderAgent(a Agent) ([]byte, error) {
	d := jobOf(a.Label, a.Command, a.Directory, a.Log, a.Stop)
	d.add("RunAtLoad", false)
	switch {
	case a.Every > 0 && len(a.Calendar) == 0:
		d.add("StartInterval", a.Every)
	case a.Every == 0 && len(a.Calendar) == 1:
		d.add("StartCalendarInterval", a.Calendar[0].dict())
	case a.Every == 0 && len(a.Calendar) > 1:
		list := make([]any, len(a.Calendar))
		for i, t := range a.Calendar {
			list[i] = t.dict()
		}
		d.add("StartCalendarInterval", list)
	default:
		return nil, fmt.Errorf("cannot render %s: want an interval or wall times", a.Label)
	}
	return d.plist(a.Label)
}

// RenderDaemon is the property list of a Daemon.
func RenderDaemon(v Daemon) ([]byte, error) {
	d := jobOf(LaunchdLabel, v.Command, v.Directory, v.Log, 0)
	d.add("RunAtLoad", true)
	d.add("KeepAlive", true)
	d.add("ThrottleInterval", 5)
	return d.plist(LaunchdLabel)
}

// jobOf is what every job of ours has.
func jobOf(label string, command []string, directory, log string, stop int) *dict {
	if stop == 0 {
		stop = 75
	}
	words := make([]any, len(command))
	for i, w := range command {
		words[i] = w
	}
	d := &dict{}
	d.add("Label", label)
	d.add("ProgramArguments", words)
	d.add("WorkingDirectory", directory)
	d.add("EnvironmentVariables", (&dict{}).add("PATH", launchdPath))
	d.add("ExitTimeOut", stop)
	d.add("ProcessType", "Background")
	d.add("Umask", 0o077)
	d.add("StandardOutPath", log)
	d.add("StandardErrorPath", log)
	return d
}

func (t WallTime) dict() *dict {
	d := &dict{}
	for _, f := range []struct {
		name  string
		value int
	}{{"Month", t.Month}, {"Day", t.Day}, {"Weekday", t.Weekday}, {"Hour", t.Hour}, {"Minute", t.Minute}} {
		if f.value >= 0 {
			d.add(f.name, f.value)
		}
	}
	return d
}

// dict is a dictionary of a property list, in the order in which it was made.
type dict struct {
	keys   []string
	values []any // string, int, bool, []any or *dict
}

func (d *dict) add(key string, value any) *dict {
	d.keys, d.values = append(d.keys, key), append(d.values, value)
	return d
}

// plist writes the whole property list. What XML, or launchd, cannot be given is an error.
func (d *dict) plist(label string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n" +
		`<plist version="1.0">` + "\n")
	if err := write(&b, d, ""); err != nil {
		return nil, fmt.Errorf("cannot render %s: %w", label, err)
	}
	b.WriteString("</plist>\n")
	return []byte(b.String()), nil
}

func write(b *strings.Builder, value any, indent string) error {
	switch v := value.(type) {
	case string:
		if err := text(v); err != nil {
			return fmt.Errorf("%q %w", v, err)
		}
		b.WriteString(indent + "<string>" + escape(v) + "</string>\n")
	case int:
		fmt.Fprintf(b, "%s<integer>%d</integer>\n", indent, v)
	case bool:
		fmt.Fprintf(b, "%s<%t/>\n", indent, v)
	case []any:
		b.WriteString(indent + "<array>\n")
		for _, e := range v {
			if err := write(b, e, indent+"\t"); err != nil {
				return err
			}
		}
		b.WriteString(indent + "</array>\n")
	case *dict:
		b.WriteString(indent + "<dict>\n")
		for i, key := range v.keys {
			b.WriteString(indent + "\t<key>" + escape(key) + "</key>\n")
			if err := write(b, v.values[i], indent+"\t"); err != nil {
				return err
			}
		}
		b.WriteString(indent + "</dict>\n")
	default:
		return errors.New("a value of no known kind")
	}
	return nil
}
