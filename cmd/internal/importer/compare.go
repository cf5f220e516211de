package importer

import (
	"fmt"
	"strings"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/scheduler"
)

// Instants is how many of the next ones are compared.
const Instants = 10

// Comparison is a schedule's next instants, by the old program's rule and by ours.
type Comparison struct {
	Place
	Key, Workflow string
	Cadence       string
	Rows          []Row
	Note          string // of all rows; "" for none
}

// Row is one instant. A zero time: it is none on that side.
type Row struct {
	Old, New time.Time
	Why      string // where the sides differ
}

// compare sets old and new side by side.
func (r *reading) compare(p *Plan, c *catalog.Catalog) {
	for _, j := range p.Jobs {
		for _, t := range j.Triggers {
			key := t.Key
			if key == "" {
				key = j.Name
			}
			s := c.Schedule(key)
			if s == nil {
				continue // a bug that a test would show
			}
			out := Comparison{Place: t.Place, Key: key, Workflow: j.Name, Cadence: s.Cadence.String()}
			fresh := ours(s.Cadence, r.Now, r.Local, Instants)
			old := fresh
			switch {
			case t.Every > 0 && t.Old == nil:
				out.Note = "an interval: counted from now, if every run took no time"
			case t.Old == nil:
				out.Note = "the old side cannot be reckoned"
				old = nil
			default:
				var err error
				if old, err = r.old(t); err != nil {
					out.Note = "the old side cannot be reckoned: " + brief(err.Error())
				}
			}
			if t.Jitter > 0 {
				out.Note = join(out.Note, "each is delayed by up to "+interval(t.Jitter))
			}
			out.Rows = rows(old, fresh, Instants, func(at time.Time) string { return r.why(t, s.Cadence, at) })
			p.Compare = append(p.Compare, out)
			r.clockChange(p, t, s.Cadence, key)
		}
	}
}

// old is the next instants by the old program's rule; where that program is here, it is asked itself.
func (r *reading) old(t *Trigger) ([]time.Time, error) {
	const most = 100 // each is a process
	if t.Calendar != "" && r.Calendar != nil && r.asked < most {
		r.asked++
		if all, err := r.Calendar(t.Calendar, r.Now, Instants); err == nil {
			return all, nil
		}
	}
	return t.Old(r.Now, Instants)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func ours(c scheduler.Cadence, from time.Time, local *time.Location, n int) (all []time.Time) {
	for range n {
		s, ok := c.Next(from, local)
		if !ok {
			break
		}
		all = append(all, s.At)
		from = s.At
	}
	return all
}

// rows merges two lists in the order of time. What lies beyond the end of a full list is no difference.
func rows(old, fresh []time.Time, most int, why func(time.Time) string) (all []Row) {
	for len(all) < most && (len(old) > 0 || len(fresh) > 0) {
		switch {
		case len(old) > 0 && len(fresh) > 0 && old[0].Equal(fresh[0]):
			all = append(all, Row{Old: old[0], New: fresh[0]})
			old, fresh = old[1:], fresh[1:]
		case len(fresh) == 0 || len(old) > 0 && old[0].Before(fresh[0]):
			all = append(all, Row{Old: old[0], Why: why(old[0])})
			old = old[1:]
		default:
			all = append(all, Row{New: fresh[0], Why: why(fresh[0])})
			fresh = fresh[1:]
		}
	}
	return all
}

// why says why old and new differ at an instant.
func (r *reading) why(t *Trigger, c scheduler.Cadence, at time.Time) string {
	loc := c.Location()
	if loc == nil {
		loc = r.Local
	}
	const around = 26 * time.Hour
	_, before := at.Add(-around).In(loc).Zone()
	_, after := at.Add(around).In(loc).Zone()
	switch {
	case t.Why != "":
		return t.Why
	case before != after:
		return "the clocks change: see docs/time.md"
	}
	return "unexplained: please check"
}

// clockChange notes where the next two changes of the clocks are taken otherwise.
func (r *reading) clockChange(p *Plan, t *Trigger, c scheduler.Cadence, key string) {
	if t.Old == nil || t.Every > 0 || t.Why != "" || strings.HasPrefix(t.Cron, "@") {
		return
	}
	if f := strings.Fields(t.Cron); f[1][0] == '*' {
		return // both follow the clock
	}
	const enough = 3000 // instants in two days, of a cron that names hours
	loc := c.Location()
	if loc == nil {
		loc = r.Local
	}
	at := r.Now
	for range 2 {
		_, end := at.In(loc).ZoneBounds()
		if end.IsZero() || end.Sub(r.Now) > 366*24*time.Hour {
			return
		}
		at = end
		const day = 24 * time.Hour
		from, to := end.Add(-day), end.Add(day)
		old, err := t.Old(from, enough)
		if err != nil {
			return
		}
		fresh := ours(c, from, r.Local, enough)
		for _, row := range rows(until(old, to), until(fresh, to), enough, func(time.Time) string { return "x" }) {
			if row.Why == "" {
				continue
			}
			p.Notes = append(p.Notes, Note{Place: t.Place, Effect: Changed, Next: "choose an hour that no change of the clocks touches",
				What: fmt.Sprintf("schedule %s on %s, when the clocks change: %s", key, end.In(loc).Format(time.DateOnly), t.rule())})
			break
		}
	}
}

// rule is what the old program does about a change of the clocks.
func (t *Trigger) rule() string {
	switch {
	case t.Calendar != "":
		return "systemd skips a time that is skipped; marbles reads 02:30 as 03:30"
	case strings.HasPrefix(t.Origin, "StartCalendarInterval"):
		return "launchd leaves it to the system's library"
	}
	return "cron starts what is skipped at once after it, and follows the clock where minute or hour begins with a star; marbles reads 02:30 as 03:30, and follows the clock where the hour begins with one"
}

func until(all []time.Time, end time.Time) []time.Time {
	for i, t := range all {
		if t.After(end) {
			return all[:i]
		}
	}
	return all
}
