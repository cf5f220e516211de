package scheduler

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	sys "golang.org/x/sys/unix"
)

// tzdata is a zone's file as a machine has it. The tests need one on the machine, or Go's.
func tzdata(t *testing.T, name string) []byte {
	t.Helper()
	for _, dir := range []string{"/usr/share/zoneinfo", "/var/db/timezone/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return data
		}
	}
	t.Skipf("this machine has no zone file for %s", name)
	return nil
}

// machine is a root directory with zone files and no TZ in the environment.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T, zones ...string) machine {
	t.Helper()
	t.Setenv("TZ", "") // so that it is put back
	os.Unsetenv("TZ")
	m := machine{t, t.TempDir()}
	for _, name := range zones {
		m.write("usr/share/zoneinfo/"+name, tzdata(t, name))
	}
	m.write("etc/passwd", nil)
	return m
}

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

func (m machine) write(name string, data []byte) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), data, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) link(target string) {
	m.t.Helper()
	m.remove()
	if err := os.Symlink(target, m.path("etc/localtime")); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) remove() {
	m.t.Helper()
	if err := os.RemoveAll(m.path("etc/localtime")); err != nil {
		m.t.Fatal(err)
	}
}

// at is the wall time that a zone shows in June, which tells the zones of these tests apart.
func at(z *Zone) string {
	return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).In(z.Location()).Format("15:04")
}

func (m machine) want(z *Zone, changed bool, name, wall string) {
	m.t.Helper()
	before := z.Location()
	if got := z.Refresh(); got != changed {
		m.t.Errorf("Refresh: got %v, want %v", got, changed)
	}
	if got := z.Location().String(); got != name {
		m.t.Errorf("name: got %s, want %s", got, name)
	}
	if got := at(z); got != wall {
		m.t.Errorf("noon UTC: got %s, want %s", got, wall)
	}
	if same := z.Location() == before; same == changed {
		m.t.Errorf("the location is the same: %v, though changed is %v", same, changed)
	}
}

func TestZoneFollowsLink(t *testing.T) {
	m := newMachine(t, "Europe/Berlin", "America/New_York", "Europe/London")
	m.link("../usr/share/zoneinfo/Europe/Berlin")
	z := NewZone(m.root)
	m.want(z, false, "Europe/Berlin", "14:00")
	m.link("../usr/share/zoneinfo/America/New_York")
	m.want(z, true, "America/New_York", "08:00")
	m.want(z, false, "America/New_York", "08:00")
	// Absolute, and over a second link, as Debian's /etc/localtime may lead over /etc/alternatives.
	if err := os.Symlink(m.path("usr/share/zoneinfo/Europe/London"), m.path("etc/alternative")); err != nil {
		t.Fatal(err)
	}
	m.link("alternative")
	m.want(z, true, "Europe/London", "13:00")
	// macOS keeps its zones elsewhere.
	m.write("var/db/timezone/zoneinfo/Europe/Berlin", tzdata(t, "Europe/Berlin"))
	m.link(m.path("var/db/timezone/zoneinfo/Europe/Berlin"))
	m.want(z, true, "Europe/Berlin", "14:00")
	// The same zone at another place is no change.
	m.link("../usr/share/zoneinfo/Europe/Berlin")
	m.want(z, false, "Europe/Berlin", "14:00")
}

// Two names of one file: only the link tells.
func TestZoneHardLinkedNames(t *testing.T) {
	m := newMachine(t, "Europe/Berlin")
	if err := os.Link(m.path("usr/share/zoneinfo/Europe/Berlin"), m.path("usr/share/zoneinfo/Europe/Oslo")); err != nil {
		t.Fatal(err)
	}
	m.link("../usr/share/zoneinfo/Europe/Berlin")
	z := NewZone(m.root)
	m.link("../usr/share/zoneinfo/Europe/Oslo")
	m.want(z, true, "Europe/Oslo", "14:00")
}

func TestZoneCopiedFile(t *testing.T) {
	m := newMachine(t)
	m.write("etc/localtime", tzdata(t, "Europe/Berlin"))
	z := NewZone(m.root)
	m.want(z, false, "Local", "14:00")
	m.write("etc/localtime", tzdata(t, "America/New_York"))
	m.want(z, true, "Local", "08:00")
	// Written anew with the same content.
	m.write("etc/localtime", tzdata(t, "America/New_York"))
	m.want(z, false, "Local", "08:00")
	m.link("../usr/share/zoneinfo/nowhere")
	m.want(z, false, "Local", "08:00")
}

// Whatever stands in its place, the old zone stays in force, and the next good one is taken.
func TestZoneUnreadable(t *testing.T) {
	good := tzdata(t, "America/New_York")
	for _, c := range []struct {
		name string
		put  func(m machine)
	}{
		{"missing", func(m machine) { m.remove() }},
		{"dangling link", func(m machine) { m.link("../usr/share/zoneinfo/Nowhere/Else") }},
		{"link to itself", func(m machine) { m.link("localtime") }},
		{"directory", func(m machine) {
			m.remove()
			m.write("etc/localtime/file", nil)
		}},
		{"empty", func(m machine) {
			m.remove()
			m.write("etc/localtime", nil)
		}},
		{"half written", func(m machine) {
			m.remove()
			m.write("etc/localtime", good[:len(good)/2])
		}},
		{"text", func(m machine) {
			m.remove()
			m.write("etc/localtime", []byte("America/New_York\n"))
		}},
		{"far too large", func(m machine) {
			m.remove()
			m.write("etc/localtime", append(bytes.Clone(good), make([]byte, maxZoneFile)...))
		}},
		{"pipe", func(m machine) {
			m.remove()
			if err := sys.Mkfifo(m.path("etc/localtime"), 0o644); err != nil {
				m.t.Fatal(err)
			}
		}},
		{"not ours to read", func(m machine) {
			if os.Geteuid() == 0 {
				m.t.Skip("root reads everything")
			}
			m.remove()
			m.write("etc/localtime", good)
			if err := os.Chmod(m.path("etc/localtime"), 0); err != nil {
				m.t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, "Europe/Berlin")
			c.put(m)
			// A machine that has none is in UTC, as Go has it.
			z := NewZone(m.root)
			m.want(z, false, "UTC", "12:00")
			m.link("../usr/share/zoneinfo/Europe/Berlin")
			m.want(z, true, "Europe/Berlin", "14:00")
			c.put(m)
			m.want(z, false, "Europe/Berlin", "14:00")
			m.remove()
			m.write("etc/localtime", good)
			m.want(z, true, "Local", "08:00")
		})
	}
}

func TestZoneByTZ(t *testing.T) {
	for _, c := range []struct{ tz, name, wall string }{
		{"", "UTC", "12:00"},
		{"UTC", "UTC", "12:00"},
		{":", "UTC", "12:00"},
		{"America/New_York", "America/New_York", "08:00"},
		{":America/New_York", "America/New_York", "08:00"},
		{"/opt/zone", "/opt/zone", "08:00"},
		{":/opt/zone", "/opt/zone", "08:00"},
		{"/opt/nothing", "UTC", "12:00"},
		{"Nowhere/Else", "UTC", "12:00"},
		{"../../etc/localtime", "UTC", "12:00"},
	} {
		t.Run(c.tz, func(t *testing.T) {
			m := newMachine(t, "Europe/Berlin", "Europe/London")
			m.link("../usr/share/zoneinfo/Europe/Berlin")
			m.write("opt/zone", tzdata(t, "America/New_York"))
			t.Setenv("TZ", c.tz)
			z := NewZone(m.root)
			m.want(z, false, c.name, c.wall)
			// It is fixed, whatever the machine does.
			m.link("../usr/share/zoneinfo/Europe/London")
			m.want(z, false, c.name, c.wall)
		})
	}
}

// The real thing end to end: the link changes under a running loop, which follows within ten seconds.
func TestLoopFollowsTheLink(t *testing.T) {
	m := newMachine(t, "Europe/Berlin", "America/New_York")
	m.link("../usr/share/zoneinfo/America/New_York")
	z := NewZone(m.root)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "America/New_York", Options{})
		b.zone, b.loop.o.Zone, b.loop.local = z, z, z.Location()
		tr := trigger(t, "k", "at 09:00", wallTime(t, "2026-03-01T09:00", "America/New_York"))
		b.loop.Set([]Trigger{tr})
		b.run()
		m.link("../usr/share/zoneinfo/Europe/Berlin")
		b.pass(10 * time.Second)
		b.want("02 14:00:10 k fire 09:00 late")
		if slot, _ := b.loop.NextOf("k"); slot.At.Format(time.RFC3339) != "2026-03-03T09:00:00+01:00" {
			t.Errorf("next: got %v", slot.At)
		}
	})
}

func BenchmarkZoneRefresh(b *testing.B) {
	z := NewZone("")
	z.fixed = false
	z.Refresh()
	b.ReportAllocs()
	for b.Loop() {
		if z.Refresh() {
			b.Fatal("changed")
		}
	}
}
