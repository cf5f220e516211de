package catalog

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"marbles/cmd/internal/strict"
	"marbles/scheduler"
)

// cadence is a parsed cadence with what is worth knowing of it; equal texts share one.
type cadence struct {
	scheduler.Cadence
	err      error
	warnings []string
	gap      time.Duration // the shortest
}

// slots reports whether something may still be at work when it is due again: an interval counts from its end.
func (c *cadence) slots() bool { return c != nil && c.Interval() == 0 }

// cadenceText is a cadence as it was written: kind is every, at or cron.
type cadenceText struct{ kind, text, zone string }

// cadences parses cadences and zones once. It is safe for concurrent use.
type cadences struct {
	now   time.Time
	local *time.Location

	mu    sync.RWMutex // guards the maps
	known map[cadenceText]*cadence
	zones map[string]*zone
}

type zone struct {
	location *time.Location // nil where there is none of that name
	nearest  string
}

func newCadences(o Options) *cadences {
	local := o.Local
	if local == nil {
		local = time.Local
	}
	return &cadences{now: o.Now, local: local, known: make(map[cadenceText]*cadence), zones: make(map[string]*zone)}
}

// parse parses a cadence; at is used for the kind at only. loc is the explicit zone of that name, or nil.
func (c *cadences) parse(t cadenceText, at scheduler.At, loc *time.Location) *cadence {
	c.mu.RLock()
	known := c.known[t]
	c.mu.RUnlock()
	if known != nil {
		return known
	}
	made := new(cadence)
	switch t.kind {
	case "every":
		made.Cadence, made.err = scheduler.ParseEvery(t.text)
	case "at":
		made.Cadence, made.err = scheduler.NewAt(at)
	case "cron":
		made.Cadence, made.warnings, made.err = scheduler.ParseCron(t.text)
	}
	if made.err == nil {
		if loc != nil {
			made.Cadence = made.In(loc)
		}
		made.gap = made.ShortestGap()
		if d := made.Interval(); d > 0 && d%(24*time.Hour) == 0 {
			made.warnings = append(made.warnings, fmt.Sprintf(
				"%s counts %d hours from the end of the last tick, so it drifts; for a fixed time of day use `at`",
				made.Cadence, d/time.Hour))
		}
		if !c.now.IsZero() {
			if sentence := made.ClockChange(c.now, c.local); sentence != "" {
				made.warnings = append(slices.Clone(made.warnings), sentence)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[t]; known != nil {
		return known
	}
	t.text, t.zone = strings.Clone(t.text), strings.Clone(t.zone)
	c.known[t] = made
	return made
}

// zone finds a zone by name.
func (c *cadences) zone(name string) *zone {
	c.mu.RLock()
	known := c.zones[name]
	c.mu.RUnlock()
	if known != nil {
		return known
	}
	made := new(zone)
	if name != "" && name != "Local" {
		made.location, _ = time.LoadLocation(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if made.location == nil && len(c.zones) < 100 { // a catalog full of wrong zones is not searched for each
		made.nearest = nearestZone(name)
	}
	c.zones[strings.Clone(name)] = made
	return made
}

// nearestZone is the zone of the system's database whose name is most like a text.
func nearestZone(text string) string {
	names := make(map[string]bool)
	for _, root := range []string{"/usr/share/zoneinfo", "/var/db/timezone/zoneinfo"} {
		filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, path)
			switch {
			case err != nil:
			case e.IsDir() && (rel == "posix" || rel == "right"):
				return fs.SkipDir
			case !e.IsDir() && rel[0] >= 'A' && rel[0] <= 'Z':
				names[rel] = true
			}
			return nil
		})
		if _, err := os.Stat(root); err == nil && len(names) > 0 {
			break
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, name := range sorted {
		if strings.HasSuffix(strings.ToLower(name), "/"+strings.ToLower(text)) {
			return name
		}
	}
	return strict.Nearest(text, slices.Values(sorted))
}
