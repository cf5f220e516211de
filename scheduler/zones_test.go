package scheduler

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests here compare the slots around every clock change of every zone with an oracle that knows nothing of spans: it reads
// the wall clock at each minute of a stretch, and applies the rule to what it read.

// reading is what a clock shows.
type reading struct {
	civil             int64
	day, hour, minute int
	weekday           time.Weekday
}

// timeline is what the wall clock of a zone shows at each minute of a stretch.
type timeline struct {
	loc   *time.Location
	start int64 // Unix seconds of the first minute
	wall  []reading
	base  int64   // civil seconds of first[0]
	first []int64 // the instant at which each civil minute was shown first, 0 for never
}

func newTimeline(loc *time.Location, start, end int64) *timeline {
	const room = 2 * daySeconds // civil times run ahead of and behind the start by the offset and the changes
	tl := &timeline{loc: loc, start: start, base: start - room, first: make([]int64, (end-start+2*room)/60)}
	for at := start; at < end; at += 60 {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		w := at + int64(offset)
		tl.wall = append(tl.wall, newReading(w))
		if i := (w - tl.base) / 60; tl.first[i] == 0 {
			tl.first[i] = at
		}
	}
	return tl
}

// shown is the first instant at which the clock shows a civil time, 0 where it never does.
func (tl *timeline) shown(civil int64) int64 { return tl.first[(civil-tl.base)/60] }

func newReading(civil int64) reading {
	t := time.Unix(civil, 0).UTC()
	return reading{civil, t.Day(), t.Hour(), t.Minute(), t.Weekday()}
}

// slots are the instants of the matching wall times from the first of them to the last: the first occurrence of each, and
// for the ones that never occur, the instant that the offset before the jump over them gives.
func (tl *timeline) slots(match func(reading) bool) []int64 {
	var out []int64
	highest := tl.wall[0].civil - 60
	for i, w := range tl.wall {
		for skipped := highest + 60; skipped < w.civil; skipped += 60 {
			if tl.shown(skipped) == 0 && match(newReading(skipped)) {
				before := tl.wall[i-1].civil - (tl.start + int64(i-1)*60)
				out = append(out, skipped-before)
			}
		}
		highest = max(highest, w.civil)
		if at := tl.start + int64(i)*60; match(w) && tl.shown(w.civil) == at {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// elapsed are the instants at which the wall shows a matching time.
func (tl *timeline) elapsed(match func(reading) bool) []int64 {
	var out []int64
	for i, w := range tl.wall {
		if match(w) {
			out = append(out, tl.start+int64(i)*60)
		}
	}
	return out
}

// subject is a cadence and what it means, said again without it.
type subject struct {
	c     Cadence
	match func(reading) bool
}

// subjects are cadences with slots in and around the hours of a clock change whose wall time begins at an hour.
func subjects(t *testing.T, hour int) []subject {
	in := func(v int, set ...int) bool { return slices.Contains(set, v) }
	h1 := (hour + 1) % 24
	daily, err := NewAt(At{Hour: hour, Minute: 30})
	if err != nil {
		t.Fatal(err)
	}
	weekend, err := NewAt(At{Hour: hour, Minute: 15, Weekdays: []time.Weekday{time.Sunday, time.Friday}})
	if err != nil {
		t.Fatal(err)
	}
	lo, hi := min(hour, h1), max(hour, h1)
	return []subject{
		{daily, func(w reading) bool { return w.hour == hour && w.minute == 30 }},
		{weekend, func(w reading) bool {
			return w.hour == hour && w.minute == 15 && in(int(w.weekday), 0, 5)
		}},
		{mustCron(t, fmt.Sprintf("*/15 %d,%d * * *", lo, hi)), func(w reading) bool {
			return w.minute%15 == 0 && in(w.hour, hour, h1)
		}},
		{mustCron(t, "7,37,59 0-23 * * *"), func(w reading) bool { return in(w.minute, 7, 37, 59) }},
		{mustCron(t, fmt.Sprintf("0,50 %d-%d 1,8-14,25-31 * 0", lo, hi)), func(w reading) bool {
			return in(w.minute, 0, 50) && lo <= w.hour && w.hour <= hi &&
				(w.day == 1 || 8 <= w.day && w.day <= 14 || w.day >= 25 || w.weekday == 0)
		}},
		{mustCron(t, "*/20 * * * *"), func(w reading) bool { return w.minute%20 == 0 }},
		{mustCron(t, "5 */2 * * *"), func(w reading) bool { return w.minute == 5 && w.hour%2 == 0 }},
	}
}

func TestEveryClockChangeOfEveryZone(t *testing.T) {
	zones := allZones(t)
	changes := clockChanges(zones)
	t.Logf("%d zones, %d clock changes", len(zones), len(changes))
	if len(changes) < 200 {
		t.Fatalf("found %d clock changes; is the tz database there?", len(changes))
	}
	bySubject := make([][]subject, 24)
	for hour := range bySubject {
		bySubject[hour] = subjects(t, hour)
	}
	workers := runtime.GOMAXPROCS(0)
	for n := range workers {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			for i := n; i < len(changes) && !t.Failed(); i += workers {
				ch := changes[i]
				tl := newTimeline(ch.loc, ch.at-3*daySeconds, ch.at+3*daySeconds)
				wall := ch.at + min(ch.before, ch.offset)
				for _, s := range bySubject[floorDiv(wall, 3600)-24*floorDiv(wall, daySeconds)] {
					tl.check(t, s)
				}
			}
		})
	}
}

// check compares a day and more on either side of the change; the ends of the stretch are left out, where the oracle cannot see
// what a slot was moved from.
func (tl *timeline) check(t *testing.T, s subject) {
	t.Helper()
	want := tl.slots
	if s.c.cal.elapsed {
		want = tl.elapsed
	}
	from, to := tl.start+26*3600, tl.start+int64(len(tl.wall))*60
	slots := slices.DeleteFunc(want(s.match), func(at int64) bool { return at <= from })
	at := time.Unix(from, 0)
	for i := 0; ; i++ {
		next, ok := s.c.Next(at, tl.loc)
		if !ok || !next.At.After(at) {
			t.Errorf("%s in %s: after %s comes %s", s.c, tl.loc, at.In(tl.loc), next.At)
			return
		}
		if next.At.Unix() >= to {
			if i < len(slots) {
				t.Errorf("%s in %s: no slot at %s", s.c, tl.loc, time.Unix(slots[i], 0).In(tl.loc))
			}
			break
		}
		if i >= len(slots) || slots[i] != next.At.Unix() {
			t.Errorf("%s in %s: slot %d after %s is %s", s.c, tl.loc, i, at.In(tl.loc), next.At)
			return
		}
		at = next.At
	}
	if len(slots) == 0 {
		return
	}
	oldest, newest, count, more, ok := s.c.Latest(time.Unix(from, 0), time.Unix(to-1, 0), tl.loc)
	if oldest.At.Unix() != slots[0] || newest.At.Unix() != slots[len(slots)-1] || count != len(slots) || more || !ok {
		t.Errorf("%s in %s: Latest says %s to %s, %d, %t; want %d", s.c, tl.loc, oldest.At, newest.At, count, more, len(slots))
	}
	w := newWalk(s.c.cal, tl.loc, from+1)
	a, n, _ := w.next(from + 1)
	if a, _ = s.c.lastSlot(a, n, to-1, tl.loc); a != slots[len(slots)-1] {
		t.Errorf("%s in %s: the last slot is %d, want %d", s.c, tl.loc, a, slots[len(slots)-1])
	}
}

// Between the changes: a question every few weeks through 50 years, which is past the end of most zones' tables.
func TestEveryZoneOnceADay(t *testing.T) {
	c, err := NewAt(At{Hour: 2, Minute: 30})
	if err != nil {
		t.Fatal(err)
	}
	for _, loc := range allZones(t) {
		for day := dayNumber(2000, 1, 1); day < dayNumber(2050, 1, 1); day += 23 {
			y, m, d := date(day)
			slot := Resolve(y, m, d, 2, 30, loc)
			s, ok := c.Next(slot.Add(-time.Minute), loc)
			if !ok || !s.At.Equal(slot) {
				t.Fatalf("%s: before %s comes %s", loc, slot, s.At)
			}
			s, ok = c.Next(slot, loc)
			if after := Resolve(y, m, d+1, 2, 30, loc); !ok || !s.At.Equal(after) && !after.Equal(slot) {
				t.Fatalf("%s: after %s comes %s, want %s", loc, slot, s.At, after)
			}
		}
	}
}

// Go's answer for the last day of a leap year ends before that day does.
func TestLastDayOfALeapYear(t *testing.T) {
	loc := zone(t, "America/New_York")
	for _, hour := range []int{0, 1, 12, 23} {
		at := time.Date(2096, 12, 31, hour, 0, 0, 0, time.UTC)
		if s := spanAt(at.Unix(), loc); s.end-s.start < 3600 {
			t.Errorf("the span at %s ends after %d s", at, s.end-s.start)
		}
	}
	checkNexts(t, mustCron(t, "30 */12 31 12 *").In(loc), "2096-12-31T00:00", "2096-12-31T00:30-05:00", "2096-12-31T12:30-05:00",
		"2097-12-31T00:30-05:00")
}

// clockChange is one change of a zone's offset.
type clockChange struct {
	loc            *time.Location
	at             int64
	before, offset int64
}

// clockChanges are those of all zones from 2000 to 2040. Changes that several zones share are listed once, and under the
// race detector those that come on the same weekday and hour in different years too, unless another change is near.
func clockChanges(zones []*time.Location) []clockChange {
	type kind struct{ at, before, offset, near int64 }
	seen := make(map[kind]bool)
	var out []clockChange
	start, end := dayNumber(2000, 1, 1)*daySeconds, dayNumber(2041, 1, 1)*daySeconds
	for _, loc := range zones {
		last := int64(0)
		for s := spanAt(start, loc); s.end < end; {
			s = s.after(loc)
			if s.before == s.offset {
				continue
			}
			k := kind{s.start, s.before, s.offset, 0}
			if s.start-last < 10*daySeconds {
				k.near = last
			} else if raceDetector {
				k.at = k.at % (7 * daySeconds)
			}
			last = s.start
			if !seen[k] {
				seen[k] = true
				out = append(out, clockChange{loc, s.start, s.before, s.offset})
			}
		}
	}
	return out
}

// allZones are the zones of the system's tz database, or of Go's; of zones that agree since 1999, one.
func allZones(t *testing.T) []*time.Location {
	t.Helper()
	seen := make(map[string]bool)
	var out []*time.Location
	add := func(name string, data []byte) {
		if !strings.HasPrefix(string(data), "TZif") {
			return
		}
		loc, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		var rules strings.Builder
		for s := spanAt(dayNumber(1999, 1, 1)*daySeconds, loc); s.start < dayNumber(2041, 6, 1)*daySeconds; s = s.after(loc) {
			fmt.Fprintln(&rules, s.start, s.offset)
		}
		if !seen[rules.String()] {
			seen[rules.String()] = true
			out = append(out, loc)
		}
	}
	const system = "/usr/share/zoneinfo"
	if _, err := os.Stat(system + "/Europe/Berlin"); err == nil {
		root := os.DirFS(system)
		err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() && (path == "right" || path == "posix") {
				return fs.SkipDir // the first counts leap seconds, which Go does not
			}
			if err == nil && !d.IsDir() {
				if data, err := fs.ReadFile(root, path); err == nil {
					add(path, data)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	archive, err := zip.OpenReader(filepath.Join(goroot(t), "lib/time/zoneinfo.zip"))
	if err != nil {
		t.Skipf("no tz database: %v", err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		add(f.Name, data)
	}
	return out
}

// goroot is where the Go that runs the tests lies.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no tz database: go env GOROOT: %v", err)
	}
	return strings.TrimSpace(string(out))
}
