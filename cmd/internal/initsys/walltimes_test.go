package initsys

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"howett.net/plist"

	"marbles/packaging"
	"marbles/scheduler"
)

// agent renders a key's job and reads it back with another reader of property lists; a third one must take it too.
func agent(t *testing.T, a packaging.Agent) map[string]any {
	t.Helper()
	a.Label, a.Command, a.Directory, a.Log = Label("k"), []string{"/usr/local/bin/marbles", "roll", "--due", "k"}, "/Users/me", "/Users/me/k.log"
	text, err := packaging.RenderAgent(a)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if _, err := plist.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return got
}

func TestWallTimes(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	at := func(hour, minute int, days ...time.Weekday) scheduler.Cadence {
		c, err := scheduler.NewAt(scheduler.At{Hour: hour, Minute: minute, Weekdays: days})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	type dict = map[string]any
	n := func(v int) any { return uint64(v) }
	for _, tt := range []struct {
		c     scheduler.Cadence
		want  any
		notes int
	}{
		{at(2, 30), dict{"Hour": n(2), "Minute": n(30)}, 0},
		{at(9, 0, time.Sunday, time.Friday), []any{
			dict{"Weekday": n(0), "Hour": n(9), "Minute": n(0)}, dict{"Weekday": n(5), "Hour": n(9), "Minute": n(0)},
		}, 0},
		{cron(t, "0,30 * * * *"), []any{dict{"Minute": n(0)}, dict{"Minute": n(30)}}, 0},
		{cron(t, "15 4 1 */6 *"), []any{
			dict{"Month": n(1), "Day": n(1), "Hour": n(4), "Minute": n(15)}, dict{"Month": n(7), "Day": n(1), "Hour": n(4), "Minute": n(15)},
		}, 0},
		{cron(t, "15 4 1 * mon"), []any{dict{"Day": n(1), "Hour": n(4), "Minute": n(15)}, dict{"Weekday": n(1), "Hour": n(4), "Minute": n(15)}}, 0},
		{cron(t, "15 4 1 3 mon"), dict{"Month": n(3), "Hour": n(4), "Minute": n(15)}, 1},
		{cron(t, "15 4 */30 * mon"), []any{dict{"Day": n(1), "Hour": n(4), "Minute": n(15)}, dict{"Day": n(31), "Hour": n(4), "Minute": n(15)}}, 1},
	} {
		list, notes, err := WallTimes(tt.c, time.UTC, now)
		if err != nil {
			t.Errorf("%s: %v", tt.c, err)
			continue
		}
		got := agent(t, packaging.Agent{Calendar: list})
		if diff := cmp.Diff(tt.want, got["StartCalendarInterval"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.c, diff)
		}
		if len(notes) != tt.notes {
			t.Errorf("%s: %q, want %d notes", tt.c, notes, tt.notes)
		}
		if got["RunAtLoad"] != false {
			t.Error("it runs at load")
		}
	}
}

func TestWallTimesRefused(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for c, want := range map[scheduler.Cadence]string{
		cron(t, "*/2 0-22 * * 1-6"):                    "launchd would need 4140 entries",
		cron(t, "0 2 * * *").In(zone(t, "Asia/Tokyo")): "launchd knows the machine's time zone alone (Europe/Berlin)",
	} {
		if _, _, err := WallTimes(c, zone(t, "Europe/Berlin"), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c, err, want)
		}
	}
	// Another name of the machine's own zone is no other zone.
	if _, _, err := WallTimes(cron(t, "0 2 * * *").In(zone(t, "Europe/Rome")), zone(t, "Europe/Berlin"), now); err != nil {
		t.Error(err)
	}
}

// launchdFires reports whether an entry matches a wall time, by launchd's rule: where both are given a day matches by its
// date or its weekday.
func launchdFires(w packaging.WallTime, at time.Time) bool {
	is := func(field, value int) bool { return field < 0 || field == value }
	byDate, byWeekday := is(w.Day, at.Day()) && is(w.Month, int(at.Month())), is(w.Weekday, int(at.Weekday()))
	day := byDate && byWeekday
	if w.Weekday >= 0 && (w.Day >= 0 || w.Month >= 0) {
		day = byDate || byWeekday
	}
	return is(w.Minute, at.Minute()) && is(w.Hour, at.Hour()) && day
}

// TestWallTimesNameEverySlot: launchd must start marbles at each of the next 50 slots of hundreds of cadences, and at no
// other time, unless a note says so.
func TestWallTimesNameEverySlot(t *testing.T) {
	base := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	refused := 0
	cadences := generate(t, rand.New(rand.NewPCG(3, 3)), 200)
	for _, c := range cadences {
		list, notes, err := WallTimes(c, time.UTC, base)
		if err != nil {
			refused++
			continue
		}
		fires := func(at time.Time) bool {
			for _, w := range list {
				if launchdFires(w, at) {
					return true
				}
			}
			return false
		}
		last := base
		for range 50 {
			s, ok := c.Next(last, time.UTC)
			if !ok {
				break
			}
			if !fires(s.At) {
				t.Errorf("%s: nothing fires at %s: %v", c, s.At, list)
				break
			}
			last = s.At
		}
		if len(notes) > 0 {
			continue
		}
		for at, n := base.Add(time.Minute), 0; n < 1500; at, n = at.Add(time.Minute), n+1 {
			if s, _ := c.Next(at.Add(-time.Second), time.UTC); fires(at) != s.At.Equal(at) {
				t.Errorf("%s fires at %s: %v", c, at, fires(at))
				break
			}
		}
	}
	if refused > len(cadences)/3 {
		t.Errorf("%d of %d were refused", refused, len(cadences))
	}
}

func TestIntervalOfLaunchd(t *testing.T) {
	for every, want := range map[time.Duration]int{90 * time.Second: 90, 6 * time.Hour: 21600, 7 * 24 * time.Hour: 21600} {
		got, notes := Interval(every)
		if got != want || len(notes) > 0 != (every > 6*time.Hour) {
			t.Errorf("%s: %d, %q", every, got, notes)
		}
		if n := agent(t, packaging.Agent{Every: got})["StartInterval"]; n != uint64(want) {
			t.Errorf("StartInterval is %v", n)
		}
	}
}

// TestAgentsAreReadByAnother: a second reader takes what is written, whatever stands in it, and finds the same.
func TestAgentsAreReadByAnother(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is not installed, and CI=true")
		}
		t.Skip("python3 is not installed")
	}
	odd := `a <b> & "c" 'd' ]]> é`
	text, err := packaging.RenderAgent(packaging.Agent{
		Label: Label(odd), Command: []string{"/opt/" + odd, odd}, Directory: "/" + odd, Log: "/" + odd,
		Calendar: []packaging.WallTime{{Minute: 1, Hour: 2, Day: -1, Weekday: 0, Month: -1}, {Minute: 1, Hour: 2, Day: 3, Weekday: -1, Month: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := packaging.RenderDaemon(packaging.Daemon{Command: []string{"/opt/" + odd, "run"}, Directory: "/", Log: "/var/log/" + odd})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{text, Seal(daemon)} {
		var ours any
		if _, err := plist.Unmarshal(text, &ours); err != nil {
			t.Fatal(err)
		}
		// It gives the list back in a form of its own, which is read again here.
		cmd := exec.Command(python, "-c", "import plistlib,sys; sys.stdout.buffer.write(plistlib.dumps(plistlib.loads(sys.stdin.buffer.read()), fmt=plistlib.FMT_BINARY))")
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("plistlib refuses it: %v\n%s", err, text)
		}
		var theirs any
		if _, err := plist.Unmarshal(out, &theirs); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fmt.Sprint(ours), fmt.Sprint(theirs)); diff != "" {
			t.Errorf("-ours +theirs:\n%s", diff)
		}
	}
	for _, bad := range []packaging.Agent{
		{Label: "a\nb", Command: []string{"/x"}, Every: 1}, {Label: "a", Command: []string{"/x\x00"}, Every: 1}, {Label: "a", Command: []string{"/x"}},
	} {
		if text, err := packaging.RenderAgent(bad); err == nil {
			t.Errorf("%+v is rendered:\n%s", bad, text)
		}
	}
}
