package initsys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"marbles/state"
)

// Step is a command of a plan.
type Step struct {
	Argv []string
	// Lax: that it fails is no matter, since what it undoes may not be there.
	Lax bool
	// Again is how often it is tried again, a moment later each time.
	Again int
}

// Plan is everything that installing one thing amounts to.
type Plan struct {
	Name  string   // what is installed: marbles-backup.timer
	Files []File   // the one that counts first
	Link  string   // a path that is there while the first is enabled; "" where no file tells that
	Stamp string   // what the manager keeps of it, and forgets only while it knows the files; "" for nothing
	Dirs  []string // that have to be there, as for logs
	// Load makes the manager take the files up, and start what they say. Unload stops it, before the files go; Forget makes
	// the manager see that they went.
	Load, Unload, Forget []Step
	// Up are commands that all succeed where what the files say is in force and started.
	Up [][]string
	// Anew says that it is not known to be in force, whatever the files and Up say: an install may have been cut short.
	Anew bool
	Host Host
}

// Changed reports whether a file is not yet what the plan says.
func (p Plan) Changed() (bool, error) {
	for _, f := range p.Files {
		now, err := read(f.Path)
		if err != nil {
			return false, fmt.Errorf("cannot install %s: %w", p.Name, err)
		}
		if !now.was || !bytes.Equal(now.data, f.Data) {
			return true, nil
		}
	}
	return false, nil
}

// Conflict is the first file that is there already and is neither what the plan says nor what is known to be ours, by the
// digests of what was written; "" for none.
func (p Plan) Conflict(ours Written) (string, error) {
	for _, f := range p.Files {
		now, err := read(f.Path)
		if err != nil {
			return "", fmt.Errorf("cannot install %s: %w", p.Name, err)
		}
		if now.was && !bytes.Equal(now.data, f.Data) && !ours.has(f.Path, now.data) {
			return f.Path, nil
		}
	}
	return "", nil
}

// Print says what the plan would do.
func (p Plan) Print(w io.Writer) {
	for _, d := range p.Dirs {
		fmt.Fprintf(w, "would make %s\n", d)
	}
	for _, f := range p.Files {
		fmt.Fprintf(w, "would write %s:\n\n", f.Path)
		for line := range strings.Lines(string(f.Data)) {
			fmt.Fprint(w, strings.TrimRight("    "+line, " \n")+"\n")
		}
		fmt.Fprintln(w)
	}
	printSteps(w, p.Load)
}

func printSteps(w io.Writer, steps []Step) {
	for _, s := range steps {
		fmt.Fprintf(w, "would run %s\n", Line(s.Argv))
	}
}

// Install writes the files and loads them, all or nothing. It calls begin before it changes anything, and keep at the end,
// which belongs to it: where that fails too everything is put back. Both may be nil. It reports whether there was anything to
// do but keep.
func (p Plan) Install(ctx context.Context, begin, keep func() error) (changed bool, err error) {
	var undo []func()
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}()
	fail := func(err error) (bool, error) { return false, fmt.Errorf("cannot install %s: %w", p.Name, err) }
	old := make([]before, len(p.Files))
	fresh := true
	for i, f := range p.Files {
		if old[i], err = read(f.Path); err != nil {
			return fail(err)
		}
		fresh = fresh && !old[i].was
		changed = changed || !old[i].was || !bytes.Equal(old[i].data, f.Data)
	}
	if !changed && !p.Anew && p.up(ctx) {
		if keep != nil {
			if err := keep(); err != nil {
				return fail(err)
			}
		}
		return false, nil
	}
	if begin != nil {
		if err := begin(); err != nil {
			return fail(err)
		}
	}
	for _, d := range p.Dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fail(err)
		}
	}
	if changed {
		undo = append(undo, func() { // last: the manager sees that everything is as before
			if fresh {
				p.lax(ctx, p.Forget)
			} else {
				p.lax(ctx, p.Load)
			}
		})
	}
	for i, f := range p.Files {
		if old[i].was && bytes.Equal(old[i].data, f.Data) {
			continue
		}
		made, err := place(f.Path, f.Data)
		undo = append(undo, func() {
			if old[i].was {
				_, _ = place(f.Path, old[i].data)
				return
			}
			_ = remove(f.Path)
			for _, dir := range made {
				_ = os.Remove(dir) // unless somebody put something in
			}
		})
		if err != nil {
			return fail(err)
		}
	}
	if changed {
		undo = append(undo, func() { p.lax(ctx, p.Unload) })
	}
	for _, s := range p.Load {
		if err := p.step(ctx, s); err != nil {
			return fail(err)
		}
	}
	if keep != nil {
		if err := keep(); err != nil {
			return fail(err)
		}
	}
	return true, nil
}

// up reports whether what was installed is in force.
func (p Plan) up(ctx context.Context) bool {
	for _, argv := range p.Up {
		if _, err := p.Host.Run(ctx, argv); err != nil {
			return false
		}
	}
	return len(p.Up) > 0
}

// lax runs steps and minds no error.
func (p Plan) lax(ctx context.Context, steps []Step) {
	for _, s := range steps {
		s.Lax = true
		_ = p.step(context.WithoutCancel(ctx), s)
	}
}

// step runs a command; an error names it, and has it as its hint.
func (p Plan) step(ctx context.Context, s Step) error {
	const moment = 300 * time.Millisecond
	for try := 0; ; try++ {
		said, err := p.Host.Run(ctx, s.Argv)
		if err == nil || s.Lax {
			return nil
		}
		if try < s.Again {
			wait := time.NewTimer(moment << try)
			select {
			case <-wait.C:
				continue
			case <-ctx.Done():
				wait.Stop()
			}
		}
		if said != "" {
			err = fmt.Errorf("%w: %s", err, strings.ReplaceAll(said, "\n", "; "))
		}
		return state.Hint(fmt.Errorf("%s: %w", Line(s.Argv), err), "everything was put back as it was; to see for yourself: "+Line(s.Argv))
	}
}

// Removal is what Remove did.
type Removal struct {
	Removed []string
	Kept    []string // because somebody has changed them since
	Gone    []string // already
}

// Remove stops what was installed and removes its files, where they are what was written by the digests; others too where
// forced. Then, unless it has kept a file, which a forced Remove is to find again, it calls drop, which forgets the digests;
// nil for none. What fails before that is done again by the next Remove.
func (p Plan) Remove(ctx context.Context, ours Written, force bool, drop func() error) (r Removal, err error) {
	for _, s := range p.Unload {
		if err := p.step(ctx, s); err != nil {
			return r, fmt.Errorf("cannot uninstall %s: %w", p.Name, state.Hint(errors.Unwrap(err), Line(s.Argv)))
		}
	}
	for _, f := range p.Files {
		now, err := read(f.Path)
		switch {
		case err != nil && !force:
			r.Kept = append(r.Kept, f.Path)
			continue
		case err == nil && !now.was:
			r.Gone = append(r.Gone, f.Path)
			continue
		case err == nil && !ours.has(f.Path, now.data) && !force:
			r.Kept = append(r.Kept, f.Path)
			continue
		}
		if err := remove(f.Path); err != nil {
			return r, fmt.Errorf("cannot uninstall %s: %w", p.Name, err)
		}
		r.Removed = append(r.Removed, f.Path)
	}
	if p.Stamp != "" {
		_ = remove(p.Stamp) // of a timer that is gone
	}
	if drop != nil && len(r.Kept) == 0 {
		if err := drop(); err != nil {
			return r, fmt.Errorf("cannot uninstall %s: %w", p.Name, err)
		}
	}
	for _, s := range p.Forget {
		if err := p.step(ctx, s); err != nil {
			return r, fmt.Errorf("cannot uninstall %s: %w", p.Name, state.Hint(errors.Unwrap(err), Line(s.Argv)))
		}
	}
	return r, nil
}

// PrintRemoval says what Remove would do.
func (p Plan) PrintRemoval(w io.Writer, ours Written, force bool) {
	printSteps(w, p.Unload)
	for _, f := range p.Files {
		now, err := read(f.Path)
		switch {
		case err == nil && !now.was:
			fmt.Fprintf(w, "%s is gone already\n", f.Path)
		case !force && (err != nil || !ours.has(f.Path, now.data)):
			fmt.Fprintf(w, "would leave %s: somebody has changed it\n", f.Path)
		default:
			fmt.Fprintf(w, "would remove %s\n", f.Path)
		}
	}
	printSteps(w, p.Forget)
}
