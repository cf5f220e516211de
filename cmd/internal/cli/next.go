package cli

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
	"marbles/scheduler"
)

// upcoming is `next --json`. Times carry the offset of the cadence's zone.
type upcoming struct {
	Key      string       `json:"key"`
	Cadence  string       `json:"cadence"`
	Timezone string       `json:"timezone"`
	Next     []string     `json:"next"`
	Clock    *handedClock `json:"clock,omitzero"` // whose it is, where it was handed to an init system
}

type nextFlags struct {
	cron, at, every, timezone, from string
	n                               int
	json                            bool
}

func newNext(a *app) *cobra.Command {
	var f nextFlags
	c := &cobra.Command{
		Use:   "next [key]",
		Short: "Show the next instants of a key, or of a cadence given by flags",
		Example: `  marbles next backup
  marbles next --cron "30 2 * * *" --timezone Europe/Berlin --from 2026-03-28T12:00:00+01:00 -n 3
  marbles next --at '{"hour": 9, "weekday": ["mon", "thu"]}'`,
		ValidArgsFunction: a.completeNames(false),
		Args: func(c *cobra.Command, args []string) error {
			given := 0
			for _, name := range []string{"cron", "at", "every"} {
				if c.Flags().Changed(name) {
					given++
				}
			}
			if given+len(args) != 1 {
				return usage("next takes one key, or one of --cron, --at and --every")
			}
			if len(args) == 1 && f.timezone != "" {
				return usage("--timezone goes with --cron, --at and --every; a key has its own")
			}
			if f.n < 1 || f.n > 10000 {
				return usage("-n takes a number from 1 to 10000")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.next(c, f, args) },
	}
	c.Flags().StringVar(&f.cron, "cron", "", "a cron `expression` of five fields")
	c.Flags().StringVar(&f.at, "at", "", "a calendar slot as `JSON`, as in {\"hour\": 2, \"minute\": 30}")
	c.Flags().StringVar(&f.every, "every", "", "an `interval`, as 30m, 6h or 1d")
	c.Flags().StringVar(&f.timezone, "timezone", "", "time `zone` for --cron and --at (default: the machine's)")
	c.Flags().StringVar(&f.from, "from", "", "`instant` to look from, RFC 3339 or 2006-01-02T15:04 in the zone (default: now)")
	c.Flags().IntVarP(&f.n, "number", "n", 5, "how many")
	jsonFlag(c, &f.json)
	return c
}

func (a *app) next(c *cobra.Command, f nextFlags, args []string) error {
	local := scheduler.NewZone("").Location()
	out := upcoming{Next: []string{}}
	var cadence scheduler.Cadence
	from := time.Now()
	if len(args) == 1 {
		s, err := a.settings(c, settings.Options{Reader: true})
		if err != nil {
			return err
		}
		catalogs, err := a.catalogs(s, false)
		if err != nil {
			return err
		}
		found, ok := cadenceOf(catalogs, args[0])
		if !ok {
			return unknownName(catalogs, args[0])
		}
		cadence, out.Key = found, args[0]
		out.Clock = handedClocks(s)(pick(catalogs, args[0]).Sources[0].Workspace, args[0])
		if !c.Flags().Changed("from") {
			if from, err = a.lastOf(c, catalogs, args[0], cadence); err != nil {
				return err
			}
		}
	} else {
		var err error
		if cadence, err = f.cadence(a); err != nil {
			return err
		}
	}
	zone := cadence.Location()
	if zone == nil {
		zone = local
	}
	if c.Flags().Changed("from") {
		var err error
		if from, err = parseFrom(f.from, zone); err != nil {
			return err
		}
	}
	out.Cadence, out.Timezone = cadence.String(), zone.String()
	t := from
	for range f.n {
		slot, ok := cadence.Next(t, local)
		if !ok {
			break
		}
		out.Next = append(out.Next, slot.At.In(zone).Format(time.RFC3339))
		t = slot.At
	}
	if f.json {
		return printJSON(a.Stdout, out)
	}
	if out.Clock != nil {
		fmt.Fprintf(a.Stderr, "note: %s\n", safe(out.Clock.text()))
		if stale := out.Clock.stale(out.Key, cadence); stale != "" {
			fmt.Fprintf(a.Stderr, "note: it was %s\n", safe(stale))
		}
	}
	for _, n := range out.Next {
		fmt.Fprintln(a.Stdout, n)
	}
	return nil
}

// lastOf is the instant from which a key's next slot counts: now, or for an interval its last finish, as the service
// reckons it, as long as that is not overdue.
func (a *app) lastOf(c *cobra.Command, catalogs []*catalog.Catalog, key string, cadence scheduler.Cadence) (time.Time, error) {
	now := time.Now()
	if cadence.Interval() == 0 {
		return now, nil
	}
	_, root, err := a.reader(c)
	if err != nil {
		return now, err
	}
	for _, cat := range catalogs {
		if cat.Schedule(key) == nil && cat.Monitor(key) == nil {
			continue
		}
		ws, err := root.Workspace(cat.Sources[0].Workspace)
		if err != nil {
			return now, err
		}
		last := time.Time{}
		if since, err := ws.Since(); err == nil && since[key].Cadence == cadence.String() {
			last = since[key].At.Time
		}
		if rec, err := ws.Key(key); err == nil && rec != nil && !rec.LastFinish.IsZero() {
			last = rec.LastFinish.Time
		}
		if last.Add(cadence.Interval()).After(now) && !last.After(now) {
			return last, nil
		}
		return now, nil
	}
	return now, nil
}

func cadenceOf(catalogs []*catalog.Catalog, key string) (scheduler.Cadence, bool) {
	for _, c := range catalogs {
		if s := c.Schedule(key); s != nil {
			return s.Cadence, true
		}
		if m := c.Monitor(key); m != nil {
			return m.Cadence, true
		}
	}
	return scheduler.Cadence{}, false
}

func (f nextFlags) cadence(a *app) (scheduler.Cadence, error) {
	var cadence scheduler.Cadence
	var err error
	switch {
	case f.cron != "":
		var warnings []string
		cadence, warnings, err = scheduler.ParseCron(f.cron)
		for _, w := range warnings {
			fmt.Fprintf(a.Stderr, "warning: %s\n", strict.OneLine(w))
		}
	case f.at != "":
		var at scheduler.At
		if at, err = parseAt(f.at); err == nil {
			cadence, err = scheduler.NewAt(at)
		}
	default:
		cadence, err = scheduler.ParseEvery(f.every)
	}
	if err != nil {
		return cadence, &codedError{code: exitUsage, err: err}
	}
	if f.timezone == "" {
		return cadence, nil
	}
	loc, err := time.LoadLocation(f.timezone)
	if err != nil || f.timezone == "Local" {
		return cadence, usage("unknown time zone %q", f.timezone)
	}
	return cadence.In(loc), nil
}

// parseAt reads {"hour": 2, "minute": 30, "weekday": "mon" or ["mon", …]}.
func parseAt(text string) (scheduler.At, error) {
	var raw struct {
		Hour    *int `json:"hour"`
		Minute  int  `json:"minute"`
		Weekday any  `json:"weekday"`
	}
	bad := fmt.Errorf("cannot read calendar slot %s (want hour 0–23, minute 0–59)", text)
	if err := json.Unmarshal([]byte(text), &raw, json.RejectUnknownMembers(true)); err != nil || raw.Hour == nil {
		return scheduler.At{}, bad
	}
	at := scheduler.At{Hour: *raw.Hour, Minute: raw.Minute}
	var names []any
	switch w := raw.Weekday.(type) {
	case nil:
	case string:
		names = []any{w}
	case []any:
		names = w
	default:
		return scheduler.At{}, bad
	}
	for _, n := range names {
		name, _ := n.(string)
		day, ok := scheduler.ParseWeekday(name)
		if !ok {
			return scheduler.At{}, fmt.Errorf("cannot read weekday %v (want sun, mon, tue, wed, thu, fri or sat)", n)
		}
		at.Weekdays = append(at.Weekdays, day)
	}
	return at, nil
}

// parseFrom reads RFC 3339, or a civil time in the zone.
func parseFrom(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			if layout[len(layout)-1] == '0' { // it carried its own offset
				return t, nil
			}
			return scheduler.Resolve(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), zone).Add(time.Duration(t.Second()) * time.Second), nil
		}
	}
	return time.Time{}, usage("cannot read --from %q (want 2006-01-02T15:04:05+01:00 or 2006-01-02T15:04)", text)
}
