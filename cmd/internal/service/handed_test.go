package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// handOver hands a key's clock over, by a file in a folder of the test's.
func handOver(t *testing.T, ws *state.Workspace, key string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "marbles-"+key+".timer")
	for _, path := range []string{file, file + ".link"} {
		if err := os.WriteFile(path, []byte("[Timer]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.WriteHanded(&state.Handed{
		Key: key, Manager: "systemd", Scope: "user", Unit: filepath.Base(file), Files: []state.HandedFile{{Path: file}}, Link: file + ".link",
	}); err != nil {
		t.Fatal(err)
	}
	return file
}

// recorded is a log that a test can look at.
type recorded struct{ lines []string }

func (r *recorded) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorded) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorded) WithGroup(string) slog.Handler            { return r }
func (r *recorded) Handle(_ context.Context, rec slog.Record) error {
	line := rec.Level.String() + " " + rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "key" {
			line += " " + a.Value.String()
		}
		return true
	})
	r.lines = append(r.lines, line)
	return nil
}

// A key that was handed over is left out while its file is there, and taken back when that is gone, whoever removed it.
func TestHandedKeys(t *testing.T) {
	ws := workspace(t)
	c := cron(t, "0 * * * *")
	target := &Target{Workspace: ws, Catalog: &catalog.Catalog{Schedules: []*catalog.Schedule{
		{Key: "ours", Cadence: c, Enabled: true}, {Key: "theirs", Cadence: c, Enabled: true},
	}}}
	file := handOver(t, ws, "theirs")
	log := &recorded{}
	s := &service{Options: Options{Log: slog.New(log)}, zone: scheduler.NewZone(t.TempDir()), looks: t.Context()}
	s.loop = scheduler.NewLoop(scheduler.Options{Fire: func(scheduler.Due) {}})
	s.live = newWatchers(s)
	defer s.live.end()
	s.handed = newHanded(s)
	targets := []*Target{target}
	s.handed.take(targets)
	p, triggers, err := makePlan(targets, time.Now(), time.UTC, s.Log)
	if err != nil {
		t.Fatal(err)
	}
	s.handed.say(nil, p)
	s.plan.Store(p)
	s.loop.Set(triggers)
	armed := func(want ...string) {
		t.Helper()
		var got []string
		for _, a := range s.plan.Load().armed {
			got = append(got, a.key())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("armed are %q, want %q", got, want)
		}
	}
	said := func(want ...string) {
		t.Helper()
		if !slices.Equal(log.lines, want) {
			t.Errorf("the log says\n%s\nwant\n%s", strings.Join(log.lines, "\n"), strings.Join(want, "\n"))
		}
		log.lines = nil
	}
	armed("ours")
	said("INFO clock of a key is the init system's: the service leaves it out theirs")
	s.handed.look()
	armed("ours")
	said()
	// A slot that came due just then is not given up: the other clock has it.
	s.gone(s.plan.Load(), scheduler.Due{ID: triggerID(ws, "theirs"), Fire: true, Slot: scheduler.Slot{At: time.Now()}})
	if ends, err := ws.Slots("theirs", 0); err != nil || len(ends) > 0 || !s.plan.Load().live(ws, "theirs") {
		t.Error(ends, err)
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.handed.look() // it may be about to be uninstalled
	armed("ours")
	s.handed.look()
	armed("ours", "theirs")
	said("WARN clock of a key is not in force: the service keeps the key theirs")
	s.handed.look()
	said()

	if err := os.WriteFile(file, []byte("[Timer]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.handed.look()
	armed("ours")
	said("INFO clock of a key is the init system's: the service leaves it out theirs")

	// A timer that somebody has disabled keeps no clock either, though its file is there.
	if err := os.Remove(file + ".link"); err != nil {
		t.Fatal(err)
	}
	s.handed.look()
	s.handed.look()
	armed("ours", "theirs")
	said("WARN clock of a key is not in force: the service keeps the key theirs")
	if err := os.WriteFile(file+".link", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.handed.look()
	armed("ours")
	said("INFO clock of a key is the init system's: the service leaves it out theirs")

	if err := ws.RemoveHanded("theirs"); err != nil {
		t.Fatal(err)
	}
	s.handed.look()
	armed("ours", "theirs")
	said("INFO clock of a key is the service's again theirs")

	// A record of an install or an uninstall that is at work, or was cut short, takes nothing from the service.
	handOver(t, ws, "theirs")
	record, err := ws.Handed("theirs")
	if err != nil {
		t.Fatal(err)
	}
	record.Idle = true
	if err := ws.WriteHanded(record); err != nil {
		t.Fatal(err)
	}
	s.handed.look()
	armed("ours", "theirs")
	said()

	handOver(t, ws, "ours")
	s.handed.look()
	armed("theirs")
	said("INFO clock of a key is the init system's: the service leaves it out ours")
}

// offers is a dispatcher with one schedule whose offers a test makes.
type offers struct {
	t    *testing.T
	ws   *state.Workspace
	sch  *catalog.Schedule
	desk *Dispatcher
	cat  *catalog.Catalog
}

func newOffers(t *testing.T, c scheduler.Cadence) *offers {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.yaml")
	if err := os.WriteFile(file, []byte("workflows:\n  job: {run: 'true'}\nschedules:\n  - {run: job, key: k, every: 1h}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := catalog.Locate(file, dir)
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalog.Load([]catalog.Source{src}, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &offers{t: t, ws: workspace(t), sch: cat.Schedule("k"), cat: cat}
	o.sch.Cadence = c
	log := slog.New(slog.DiscardHandler)
	worker := runner.New(WorkerOptions(&settings.Settings{Concurrency: 1, Cgroups: "off"}, nil, log, func(*state.Workspace, string) *runner.Workflow { return nil }))
	o.desk = &Dispatcher{Worker: worker, Log: log, Local: func() *time.Location { return time.UTC }}
	t.Cleanup(func() { _ = worker.Drain(context.Background()) })
	return o
}

// seen writes down that the key was seen first so long ago.
func (o *offers) seen(ago time.Duration) {
	o.t.Helper()
	at := state.Stamp{Time: time.Now().Add(-ago)}
	if err := o.ws.WriteSince(map[string]state.Since{"k": {Cadence: o.sch.Cadence.String(), At: at}}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *offers) offer() Answer {
	o.t.Helper()
	a, err := o.desk.Offer(context.Background(), Offer{
		Target: Target{Workspace: o.ws, Catalog: o.cat}, Key: "k", Zone: scheduler.NewZone(o.t.TempDir()),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return a
}

func (o *offers) outcomes() (list []string) {
	o.t.Helper()
	entries, err := o.ws.Slots("k", 0)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, string(e.Outcome))
	}
	return list
}

// A slot that somebody else's clock offers is started once, however often it is offered, and its line is in the ledger.
func TestOfferStartsASlotOnce(t *testing.T) {
	// Hourly, five minutes ago: the next one is far.
	o := newOffers(t, cron(t, fmt.Sprintf("%d * * * *", time.Now().UTC().Add(-5*time.Minute).Minute())))
	if a := o.offer(); a.Ticked || a.Next.IsZero() {
		t.Errorf("a key that was never seen is due: %+v", a)
	}
	o.seen(3 * time.Hour)
	a := o.offer()
	if !a.Ticked || a.Tick.Outcome != state.SlotRan || a.Tick.Err != nil {
		t.Fatalf("%+v", a)
	}
	rec, err := o.ws.Key("k")
	if err != nil || rec == nil || rec.Slot.IsZero() || rec.Slot.Second() != 0 || rec.LastStatus != "complete" {
		t.Fatalf("%+v, %v", rec, err)
	}
	if got := o.outcomes(); !slices.Equal(got, []string{"merged", "ran"}) {
		t.Errorf("the ledger says %q", got)
	}
	if a := o.offer(); a.Ticked {
		t.Errorf("it is started again: %+v", a)
	}
}

func TestOfferJudgesWhatIsLate(t *testing.T) {
	yesterday := time.Now().UTC().Add(-2 * time.Hour)
	c, err := scheduler.NewAt(scheduler.At{Hour: yesterday.Hour(), Minute: yesterday.Minute()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		catchUp scheduler.CatchUp
		jitter  time.Duration
		handed  bool
		ticked  bool
		want    []string
	}{
		{"always", scheduler.CatchUp{}, 0, false, true, []string{"ran"}},
		{"never", scheduler.CatchUp{Never: true}, 0, false, false, []string{"missed"}},
		{"young enough", scheduler.CatchUp{Within: 3 * time.Hour}, 0, false, true, []string{"ran"}},
		{"too old", scheduler.CatchUp{Within: time.Hour}, 0, false, false, []string{"missed"}},
		{"systemd may delay it by the jitter", scheduler.CatchUp{Never: true}, 3 * time.Hour, true, true, []string{"ran"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOffers(t, c.In(time.UTC))
			o.sch.CatchUp, o.sch.Jitter = tt.catchUp, tt.jitter
			if tt.handed {
				handOver(t, o.ws, "k")
			}
			o.seen(12 * time.Hour)
			if a := o.offer(); a.Ticked != tt.ticked {
				t.Errorf("%+v", a)
			}
			if got := o.outcomes(); !slices.Equal(got, tt.want) {
				t.Errorf("the ledger says %q, want %q", got, tt.want)
			}
		})
	}
}

// A timer starts nothing while the key's service is at work, and what passed then is accounted for at the next offer.
func TestOfferAfterALongRun(t *testing.T) {
	now := time.Now().UTC()
	o := newOffers(t, cron(t, fmt.Sprintf("%d * * * *", now.Add(-5*time.Minute).Minute())))
	o.sch.CatchUp, o.sch.Jitter = scheduler.CatchUp{Within: time.Hour}, 10*time.Minute // so that the newest is on time
	handOver(t, o.ws, "k")
	o.seen(24 * time.Hour)
	slot := now.Truncate(time.Minute).Add(-5*time.Minute - 4*time.Hour)
	if err := o.ws.WriteKey("k", &state.KeyRecord{
		Slot: state.Stamp{Time: slot}, LastStart: state.Stamp{Time: slot}, LastFinish: state.Stamp{Time: now.Add(-30 * time.Minute)},
	}); err != nil {
		t.Fatal(err)
	}
	if a := o.offer(); !a.Ticked || a.Missed != 3 {
		t.Errorf("%+v", a)
	}
	entries, err := o.ws.Slots("k", 0)
	if err != nil || len(entries) != 2 || entries[0].Outcome != state.SlotMissed || !strings.Contains(entries[0].Reason, "last run was at work") {
		t.Errorf("%+v, %v", entries, err)
	}
}

// An interval counts from the last finish, whatever the timer thinks; a key that is paused or not enabled is no failure.
func TestOfferOfAnInterval(t *testing.T) {
	o := newOffers(t, every(t, "1h"))
	last := time.Now().Add(-30 * time.Minute)
	if err := o.ws.WriteKey("k", &state.KeyRecord{LastFinish: state.Stamp{Time: last}}); err != nil {
		t.Fatal(err)
	}
	if a := o.offer(); a.Ticked || a.Next.Sub(last.Add(time.Hour)).Abs() > time.Second {
		t.Errorf("%+v", a)
	}
	if err := o.ws.WriteKey("k", &state.KeyRecord{LastFinish: state.Stamp{Time: last.Add(-time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.ws.SetPause("k", true, "holidays", "me", time.Now()); err != nil {
		t.Fatal(err)
	}
	if a := o.offer(); a.Tick.Outcome != state.SlotSkipped || !strings.Contains(a.Tick.Reason, "holidays") {
		t.Errorf("%+v", a)
	}
	if _, err := o.ws.SetPause("k", false, "", "me", time.Now()); err != nil {
		t.Fatal(err)
	}
	if a := o.offer(); !a.Ticked || a.Tick.Outcome != state.SlotRan {
		t.Errorf("%+v", a)
	}
	o.sch.Enabled = false
	if _, err := o.desk.Offer(context.Background(), Offer{Target: Target{Workspace: o.ws, Catalog: o.cat}, Key: "k", Zone: scheduler.NewZone(t.TempDir())}); err == nil || !strings.Contains(err.Error(), "is not enabled") {
		t.Error(err)
	}
}
