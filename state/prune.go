package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Keep says how much history is kept. Zero members do not limit.
type Keep struct {
	Runs  int           // newest settled runs of each name
	Age   time.Duration // since a run settled
	Bytes int64         // of all run files and journals of the workspace together
	// Names overrides Runs and Age for runs of a name; zero members of it override nothing.
	Names map[string]Keep
}

// of is what holds for the runs of a name.
func (k *Keep) of(name string) Keep {
	own := k.Names[name]
	return Keep{Runs: cmp.Or(own.Runs, k.Runs), Age: cmp.Or(own.Age, k.Age)}
}

// Doomed is a run that retention would delete.
type Doomed struct {
	Run   RunSummary
	Bytes int64
	Why   string // "more than 100 of backup", "older than 30d", "more than 2 GiB in all"
}

// PrunePlan is what retention would delete.
type PrunePlan struct {
	Runs []Doomed // newest first
	// Orphans are journals without a run file, requests for runs that are not there, and private files of dead owners.
	Orphans []string
	// Ledgers are slot ledgers that are to be cut to their newest lines.
	Ledgers []string
	Bytes   int64 // freed in all
	Kept    int

	more bool // another part follows
}

// Parts splits a plan into plans of so many runs, oldest first, for whoever wants to leave the disk alone in between.
func (p *PrunePlan) Parts(runs int) iter.Seq[*PrunePlan] {
	return func(yield func(*PrunePlan) bool) {
		left := p.Runs
		for len(left) > runs {
			if !yield(&PrunePlan{Runs: left[len(left)-runs:], more: true}) {
				return
			}
			left = left[:len(left)-runs]
		}
		yield(&PrunePlan{Runs: left, Orphans: p.Orphans, Ledgers: p.Ledgers})
	}
}

// Empty reports whether there is nothing to delete.
func (p *PrunePlan) Empty() bool { return len(p.Runs)+len(p.Orphans)+len(p.Ledgers) == 0 }

// keptRun is what the plan holds of each settled run: there may be very many.
type keptRun struct {
	id    string
	ended Millis
	name  int32 // its place in planner.names
	key   int32 // likewise; 0 is no key
	safe  bool
	why   int32 // its place in planner.whys; 0 is kept
	bytes int64
}

// planner makes one plan.
type planner struct {
	w     *Workspace
	keep  Keep
	now   time.Time
	x     *index
	runs  []keptRun // settled ones, newest first
	names []string
	place map[string]int32
	whys  []string
	other int64 // bytes of the runs that are not settled, or cannot be read
	rest  int   // how many those are
}

// PlanPrune says what Prune would delete; it changes nothing. Never in it: runs that are not settled, the newest run of
// each key and of each name, runs that an unsettled run belongs to or has started, and those that a key's record, a
// launch that has not started, a request or a notice that is owed names.
func (w *Workspace) PlanPrune(ctx context.Context, k Keep, now time.Time) (*PrunePlan, error) {
	// The journals are listed before the runs, so that each has its run file, if it has one at all.
	journals, err := readNames(w.path(outputDir), journalExt)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list %s: %w", w.path(outputDir), bare(err))
	}
	ids, x, err := w.runIDs()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) })
	p := &planner{w: w, keep: k, now: now, x: x, names: []string{""}, place: map[string]int32{"": 0}, whys: []string{""}}
	safe, err := p.read(ctx, ids)
	if err != nil {
		return nil, err
	}
	if err := w.addNamed(safe); err != nil {
		return nil, err
	}
	p.protect(safe)
	p.limitRuns()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if k.Bytes > 0 {
		p.limitBytes()
	}
	plan := p.plan()
	plan.Orphans = append(w.orphanJournals(journals, ids), w.leftovers(now)...)
	plan.Ledgers, err = w.longLedgers()
	for _, path := range plan.Orphans {
		plan.Bytes += fileSize(path)
	}
	return plan, errors.Join(err, ctx.Err())
}

// number is the place of a text in names.
func (p *planner) number(text string) int32 {
	n, ok := p.place[text]
	if !ok {
		n = int32(len(p.names))
		p.names = append(p.names, text)
		p.place[text] = n
	}
	return n
}

// read takes in every run: the settled ones mostly from the index. The result are the runs that unsettled ones need.
func (p *planner) read(ctx context.Context, ids []string) (safe map[string]bool, err error) {
	safe = make(map[string]bool)
	p.runs = make([]keptRun, 0, len(ids))
	const some = 1000 // summaries in memory at once
	for batch := range slices.Chunk(ids, some) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i, h := range p.w.summaries(batch, p.x) {
			s := &h.summary
			switch {
			case errors.Is(h.err, fs.ErrNotExist): // deleted since it was listed
			case h.err != nil || !s.Status.Settled():
				p.rest++
				if p.keep.Bytes > 0 {
					p.other += p.w.runSize(batch[i])
				}
				if h.err == nil {
					p.w.addRelated(batch[i], safe)
				}
			default:
				p.runs = append(p.runs, keptRun{
					id: batch[i], ended: ToMillis(orTime(s.Ended, s.Created)),
					name: p.number(strings.Clone(s.Name)), key: p.number(strings.Clone(s.Key)),
				})
			}
		}
	}
	return safe, nil
}

func orTime(t, or time.Time) time.Time {
	if t.IsZero() {
		return or
	}
	return t
}

// protect marks the runs that stay whatever is said: what others need, and the newest settled run of each name and key.
func (p *planner) protect(safe map[string]bool) {
	names, keys := make([]bool, len(p.names)), make([]bool, len(p.names))
	keys[0] = true // no key
	for i := range p.runs {
		r := &p.runs[i]
		r.safe = !names[r.name] || !keys[r.key] || safe[r.id]
		names[r.name], keys[r.key] = true, true
	}
}

// limitRuns dooms what is beyond the number and the age of each name.
func (p *planner) limitRuns() {
	type limit struct {
		Keep
		seen      int
		many, old int32 // their places in whys
	}
	limits := make([]*limit, len(p.names))
	for i := range p.runs {
		r := &p.runs[i]
		l := limits[r.name]
		if l == nil {
			l = &limit{Keep: p.keep.of(p.names[r.name])}
			l.many = p.reason(fmt.Sprintf("more than %d of %s", l.Runs, p.names[r.name]))
			l.old = p.reason("older than " + ageText(l.Age))
			limits[r.name] = l
		}
		l.seen++
		switch {
		case r.safe:
		case l.Runs > 0 && l.seen > l.Runs:
			r.why = l.many
		case l.Age > 0 && p.now.Sub(r.ended.Time()) > l.Age:
			r.why = l.old
		}
	}
}

func (p *planner) reason(text string) int32 {
	if i := slices.Index(p.whys[max(0, len(p.whys)-2):], text); i >= 0 {
		return int32(max(0, len(p.whys)-2) + i)
	}
	p.whys = append(p.whys, text)
	return int32(len(p.whys) - 1)
}

// limitBytes dooms the oldest runs until the rest is small enough.
func (p *planner) limitBytes() {
	each(len(p.runs), func(i int) { p.runs[i].bytes = p.w.runSize(p.runs[i].id) })
	total := p.other
	for i := range p.runs {
		if p.runs[i].why == 0 {
			total += p.runs[i].bytes
		}
	}
	why := p.reason("more than " + sizeText(p.keep.Bytes) + " in all")
	for i := len(p.runs) - 1; i >= 0 && total > p.keep.Bytes; i-- {
		if r := &p.runs[i]; r.why == 0 && !r.safe {
			r.why = why
			total -= r.bytes
		}
	}
}

// plan collects what is doomed.
func (p *planner) plan() *PrunePlan {
	plan := &PrunePlan{Kept: p.rest}
	var doomed []keptRun
	for _, r := range p.runs {
		if r.why != 0 {
			doomed = append(doomed, r)
		} else {
			plan.Kept++
		}
	}
	if p.keep.Bytes <= 0 {
		each(len(doomed), func(i int) { doomed[i].bytes = p.w.runSize(doomed[i].id) })
	}
	plan.Runs = make([]Doomed, 0, len(doomed))
	for _, r := range doomed {
		// Not the whole summary again: texts of errors, of 100,000 runs, would be most of the memory.
		s := RunSummary{ID: r.id, Name: p.names[r.name], Key: p.names[r.key], Ended: r.ended.Time()}
		plan.Runs = append(plan.Runs, Doomed{Run: s, Bytes: r.bytes, Why: p.whys[r.why]})
		plan.Bytes += r.bytes
	}
	return plan
}

// runSize is what a run takes: its file and its journal.
func (w *Workspace) runSize(id string) int64 {
	return fileSize(w.dir+"/"+runsDir+"/"+id+recordExt) + fileSize(w.dir+"/"+outputDir+"/"+id+journalExt)
}

func fileSize(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Size
}

// ageText writes a duration as settings do.
func ageText(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return d.String()
}

// sizeText writes a number of bytes in the largest unit that it has one of.
func sizeText(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if unit := int64(1) << u.shift; n >= unit {
			if n%unit == 0 {
				return fmt.Sprintf("%d %s", n/unit, u.name)
			}
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
