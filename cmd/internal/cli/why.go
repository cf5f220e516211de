package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/scheduler"
	"marbles/state"
)

// slotFate is `why --json`: what became of one slot.
type slotFate struct {
	Project string  `json:"project"`
	Key     string  `json:"key"`
	Cadence string  `json:"cadence"`
	Slot    *string `json:"slot"`    // null where there is none at that instant
	Outcome string  `json:"outcome"` // ran | running | skipped | merged | missed | parked | failed | due | future | unseen | none
	Run     string  `json:"run,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Holder  string  `json:"holder,omitempty"`
	Moved   string  `json:"moved,omitempty"`
	Text    string  `json:"text"`
}

func newWhy(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "why <key> [instant]",
		Short: "Say in a sentence what became of a slot",
		Long: `Say in a sentence what became of a slot of a key: that it ran, and how; that it was skipped, merged into a later
one, or missed, and why; that its run is parked; that it could not be started, is not due yet, or never was one.

The instant is RFC 3339, a time in the key's zone ("2026-03-29 02:30"), a time of day (its latest slot then), or
"yesterday"; without one it is the latest slot that was due.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage("why takes a key and at most one instant")
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(false),
		RunE: func(c *cobra.Command, args []string) error {
			return a.why(c, args, asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) why(c *cobra.Command, args []string, asJSON bool) error {
	s, err := a.settings(c, settings.Options{Reader: true})
	if err != nil {
		return err
	}
	catalogs, err := a.catalogs(s, false)
	if err != nil {
		return err
	}
	key := args[0]
	cat := pick(catalogs, key)
	if cat == nil || cat.Schedule(key) == nil && cat.Monitor(key) == nil {
		return unknownName(catalogs, key)
	}
	_, root, err := a.reader(c)
	if err != nil {
		return err
	}
	ws, err := root.Workspace(cat.Sources[0].Workspace)
	if err != nil {
		return err
	}
	cadence, _ := cadenceOf([]*catalog.Catalog{cat}, key)
	in := inquest{ws: ws, cat: cat, key: key, cadence: cadence, now: time.Now(), local: scheduler.NewZone("").Location()}
	if in.zone = cadence.Location(); in.zone == nil {
		in.zone = in.local
	}
	text := ""
	if len(args) == 2 {
		text = args[1]
	}
	fate, err := in.hold(text)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.Stdout, fate)
	}
	fmt.Fprintln(a.Stdout, safe(fate.Text))
	return nil
}

// inquest finds out what became of a slot.
type inquest struct {
	ws      *state.Workspace
	cat     *catalog.Catalog
	key     string
	cadence scheduler.Cadence
	now     time.Time
	local   *time.Location // the machine's zone
	zone    *time.Location // the key's
}

func (in *inquest) clock(t time.Time) string { return t.In(in.zone).Format("2006-01-02 15:04 MST") }

func (in *inquest) fate(outcome, text string) *slotFate {
	return &slotFate{Project: in.ws.Project(), Key: in.key, Cadence: in.cadence.String(), Outcome: outcome, Text: text}
}

// hold says what became of the slot that a text means.
func (in *inquest) hold(text string) (*slotFate, error) {
	if in.cadence.Interval() > 0 {
		return in.interval(text)
	}
	slot, ok, err := in.find(text)
	if err != nil {
		return nil, err
	}
	if !ok {
		return in.noSlot(text, slot.At)
	}
	fate, err := in.ended(slot)
	if err != nil {
		return nil, err
	}
	at := slot.At.In(in.zone).Format(time.RFC3339)
	fate.Slot = &at
	if fate.Moved = slot.Moved(in.zone); fate.Moved != "" {
		fate.Text += " (" + fate.Moved + ")"
	}
	return fate, nil
}

// latest is the latest slot at or before an instant, after the other one.
func (in *inquest) latest(after, until time.Time) (scheduler.Slot, bool) {
	_, s, _, _, ok := in.cadence.Latest(after, until, in.local)
	return s, ok
}

// aYear bounds how far back the latest slot is looked for where a rare cadence has none sooner.
const aYear = 366 * 24 * time.Hour

// find is the slot that a text means; the instant that it means where there is none.
func (in *inquest) find(text string) (scheduler.Slot, bool, error) {
	if text == "" || text == "yesterday" {
		until := in.now
		if text != "" {
			y, m, d := in.now.In(in.zone).Date()
			until = scheduler.Resolve(y, m, d, 0, 0, in.zone).Add(-1)
		}
		for back := aYear; back <= 8*aYear; back *= 2 {
			if s, ok := in.latest(until.Add(-back), until); ok {
				return s, true, nil
			}
		}
		return scheduler.Slot{At: until}, false, nil
	}
	if day, err := time.Parse("15:04", text); err == nil {
		y, m, d := in.now.In(in.zone).Date()
		at := scheduler.Resolve(y, m, d, day.Hour(), day.Minute(), in.zone)
		if at.After(in.now) {
			y, m, d = in.now.In(in.zone).AddDate(0, 0, -1).Date()
		}
		text = fmt.Sprintf("%04d-%02d-%02d %s", y, m, d, text)
	}
	at, err := parseFrom(text, in.zone)
	if err != nil {
		return scheduler.Slot{}, false, usage("cannot read the instant %q (want 2006-01-02T15:04:05+01:00, \"2006-01-02 15:04\", 15:04 or yesterday)", text)
	}
	// One that the clocks have moved goes by the time it is written for.
	civil := strings.Replace(text, " ", "T", 1)
	if s, ok := in.cadence.Next(at.Add(-25*time.Hour), in.local); ok {
		for ; ok && !s.At.After(at.Add(25*time.Hour)); s, ok = in.cadence.Next(s.At, in.local) {
			if s.Civil == civil || s.At.Equal(at) {
				return s, true, nil
			}
		}
	}
	return scheduler.Slot{At: at}, false, nil
}

// noSlot says that a key has no slot at an instant, and which are next to it.
func (in *inquest) noSlot(text string, at time.Time) (*slotFate, error) {
	var near []string
	if s, ok := in.latest(at.Add(-aYear), at); ok {
		near = append(near, in.clock(s.At))
	}
	if s, ok := in.cadence.Next(at, in.local); ok {
		near = append(near, in.clock(s.At))
	}
	if text == "" {
		return in.fate("none", fmt.Sprintf("%s (%s) was never due", in.key, in.cadence)), nil
	}
	msg := fmt.Sprintf("%s is no slot of %s (%s)", in.clock(at), in.key, in.cadence)
	if len(near) > 0 {
		msg += "; next to it are " + strings.Join(near, " and ")
	}
	return in.fate("none", msg), nil
}

// ended says how a slot ended, or why it has not.
func (in *inquest) ended(slot scheduler.Slot) (*slotFate, error) {
	entries, err := in.ws.SlotEnds(in.key, slot.At)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the slot of %s at %s", in.key, in.clock(slot.At))
	if len(entries) > 0 {
		return in.recorded(what, slot.At, best(entries)), nil
	}
	rec, err := in.ws.Key(in.key)
	if err != nil {
		return nil, err
	}
	if rec != nil && rec.Slot.Equal(slot.At.Truncate(time.Millisecond)) && rec.Run != "" {
		return in.run(what, rec.Run), nil
	}
	pauses, err := in.ws.Pauses()
	if err != nil {
		return nil, err
	}
	if slot.At.After(in.now) {
		if p := pauses.Of(in.key); p != nil {
			f := in.fate("future", fmt.Sprintf("%s is to come, but the key is paused since %s%s", what, in.clock(p.Since.Time), because(p.Reason)))
			f.Reason = p.Reason
			return f, nil
		}
		if clock := clockOf(in.ws, in.key); clock != nil {
			return in.fate("future", what+" is not due yet; "+clock.text()), nil
		}
		return in.fate("future", what+" is not due yet"), nil
	}
	if p := pauses.Within(in.key, slot.At); p != nil {
		f := in.fate("missed", fmt.Sprintf("%s was missed: the key was paused since %s%s", what, in.clock(p.Since.Time), because(p.Reason)))
		f.Reason = p.Reason
		return f, nil
	}
	return in.open(what, slot.At)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// best is the line that says most of a slot: one that it ran before one that it was parked, the later before the earlier.
func best(entries []state.SlotEntry) state.SlotEntry {
	rank := func(e state.SlotEntry) int {
		switch e.Outcome {
		case state.SlotRan:
			return 2
		case state.SlotParked:
			return 1
		}
		return 0
	}
	out := entries[0]
	for _, e := range entries[1:] {
		if rank(e) >= rank(out) {
			out = e
		}
	}
	return out
}

// recorded is what a line of the ledger says.
func (in *inquest) recorded(what string, at time.Time, e state.SlotEntry) *slotFate {
	f := in.fate(string(e.Outcome), "")
	f.Run, f.Reason, f.Holder = e.Run, e.Reason, e.Holder
	switch e.Outcome {
	case state.SlotRan, state.SlotParked:
		if e.Run != "" {
			run := in.run(what, e.Run)
			return run
		}
		f.Text = what + " ran, and saw nothing to do"
	case state.SlotSkipped:
		f.Text = what + " was skipped"
		if e.Reason != "" {
			f.Text += ": " + e.Reason
		}
		if e.Holder != "" {
			f.Text += " (" + e.Holder + ")"
		}
		if e.Run != "" && !strings.Contains(f.Text, e.Run) {
			f.Text += ", at run " + e.Run
		}
	case state.SlotMerged:
		f.Text = what + " was merged: " + e.Reason
		if later, ok := in.cadence.Next(e.Slot.Time, in.local); ok && !later.At.After(in.now) {
			f.Text += ", that of " + in.clock(later.At)
		}
	case state.SlotMissed:
		f.Text = what + " was missed: " + e.Reason
		if e.Count > 1 {
			f.Text += fmt.Sprintf(" (with %d others, from %s to %s)", e.Count-1, in.clock(e.From.Time), in.clock(e.Slot.Time))
		}
	case state.SlotFailed:
		f.Text = what + " could not be started: " + e.Reason
	default:
		f.Text = fmt.Sprintf("%s ended as %s", what, e.Outcome)
	}
	return f
}

// run says how the run of a slot went.
func (in *inquest) run(what, id string) *slotFate {
	out := in.fate("ran", "")
	out.Run = id
	f, err := in.ws.Run(id)
	if errors.Is(err, fs.ErrNotExist) {
		out.Text = fmt.Sprintf("%s ran: run %s, which is not kept any more", what, id)
		return out
	}
	if err != nil {
		out.Text = fmt.Sprintf("%s ran: %v", what, err)
		return out
	}
	t := f.Run.Timestamps
	started := millis(t.StartedAt)
	switch status := f.Run.Status; {
	case status == state.Suspended:
		out.Outcome = "parked"
		var waits []string
		for _, s := range f.Open() {
			waits = append(waits, s.Text())
		}
		out.Text = fmt.Sprintf("%s is parked: run %s waits for %s", what, id, strings.Join(waits, " and "))
	case !status.Settled() && !f.Owner().Alive():
		out.Outcome = "running"
		out.Text = fmt.Sprintf("%s was interrupted: run %s was %s in pid %d, which is gone; the next service settles it", what, id, status, f.PID)
	case !status.Settled():
		out.Outcome = "running"
		out.Text = fmt.Sprintf("%s is %s: run %s in pid %d, since %s", what, status, id, f.PID, clock(started))
	default:
		out.Text = fmt.Sprintf("%s ran: run %s, started %s, %s after %s", what, id, clock(started), status, took(started, millis(t.Ended())))
		if status == state.Complete {
			break
		}
		if f.Run.Error != nil {
			out.Reason = f.Run.Error.Message
			out.Text += ": " + clean(f.Run.Error.Message, 200)
		}
	}
	return out
}

// open says why nothing is known of a slot that was due.
func (in *inquest) open(what string, at time.Time) (*slotFate, error) {
	if s := in.cat.Schedule(in.key); s != nil && !s.Enabled {
		return in.fate("missed", what+" did not run: the schedule is not enabled"), nil
	}
	if m := in.cat.Monitor(in.key); m != nil && !m.Enabled {
		return in.fate("missed", what+" did not run: the monitor is not enabled"), nil
	}
	since, err := in.ws.Since()
	if err != nil {
		return nil, err
	}
	seen, ok := since[in.key]
	switch {
	case !ok:
		return in.fate("unseen", what+" did not run: no service has seen this key yet"), nil
	case seen.Cadence != in.cadence.String():
		return in.fate("unseen", fmt.Sprintf("%s is not accounted for: the service knows the key with another cadence (%s), and has not read the definitions since", what, seen.Cadence)), nil
	case at.Before(seen.At.Time):
		return in.fate("unseen", fmt.Sprintf("%s was before this cadence was first seen, at %s", what, in.clock(seen.At.Time))), nil
	}
	if clock := clockOf(in.ws, in.key); clock != nil {
		look := "launchctl print gui/$UID/" + clock.Unit
		if clock.Manager == "systemd" {
			look = "systemctl --" + clock.Scope + " status " + clock.Unit
		}
		return in.fate("due", fmt.Sprintf("%s is not accounted for: %s (%s); what it did not start is decided by catch_up when it does next", what, clock.text(), look)), nil
	}
	beat, err := in.ws.Heartbeat()
	switch {
	case err == nil && beat != nil && beat.Owner().Alive():
		if in.cat.Monitor(in.key) != nil {
			return in.fate("ran", what+" left no line: a look that sees nothing writes none"), nil
		}
		return in.fate("due", fmt.Sprintf("%s is due and not started yet: it waits for its turn, or its share of the jitter (service: pid %d)", what, beat.PID)), nil
	default:
		return in.fate("due", what+" is not accounted for: no service runs for this workspace; the next one decides by catch_up"), nil
	}
}

// interval says how the latest tick of an interval went, or the one that was due latest before an instant.
func (in *inquest) interval(text string) (*slotFate, error) {
	until := in.now
	if text != "" {
		at, err := parseFrom(text, in.zone)
		if err != nil {
			return nil, usage("cannot read the instant %q (want 2006-01-02T15:04:05+01:00 or \"2006-01-02 15:04\")", text)
		}
		until = at
	}
	const recent = 2000
	entries, err := in.ws.Slots(in.key, recent)
	if err != nil {
		return nil, err
	}
	slices.Reverse(entries)
	for _, e := range entries {
		if e.Slot.After(until) {
			continue
		}
		f := in.recorded(fmt.Sprintf("the tick of %s that was due at %s", in.key, in.clock(e.Slot.Time)), e.Slot.Time, e)
		at := e.Slot.In(in.zone).Format(time.RFC3339)
		f.Slot = &at
		return f, nil
	}
	pauses, err := in.ws.Pauses()
	if err != nil {
		return nil, err
	}
	if p := pauses.Of(in.key); p != nil {
		return in.fate("missed", fmt.Sprintf("%s has no tick on record before %s, and is paused since %s%s", in.key, in.clock(until), in.clock(p.Since.Time), because(p.Reason))), nil
	}
	return in.fate("none", fmt.Sprintf("%s has no tick on record before %s: an interval counts from when the key was first seen", in.key, in.clock(until))), nil
}
