package monitor

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"marbles/monitor/live"
)

// tree is what to watch for this source: the directories that its walk lists or passes through.
func (s *filesSource) tree() live.Tree {
	return live.Tree{
		Name: s.glob.text, Root: s.dir, Dirs: s.watchDirs,
		Reshapes: func(name string) bool { return name == ignoreName && !s.o.NoIgnore },
	}
}

// watchDirs yields the directory under, relative to the workspace, and those below it that the walk would enter.
func (s *filesSource) watchDirs(ctx context.Context, under string, yield func(live.Dir) bool) {
	l := s.newLook(ctx, lookHow{statOnly: true})
	root, err := s.disk.openRoot(s.dir, false)
	if err != nil {
		return
	}
	d := dirWalk{look: l, yield: yield}
	at, ok := d.rules(place{folder: root, in: s.glob.start(), out: s.exclude.start()})
	if ok && under != "" {
		for name := range strings.SplitSeq(under, "/") {
			next, enters := d.inside(at, name)
			at.release()
			if at, ok = next, enters; !ok {
				return
			}
		}
	}
	if !ok {
		at.release()
		return
	}
	d.here(at)
}

// dirWalk goes through directories alone.
type dirWalk struct {
	look    *look
	reader  reader
	yield   func(live.Dir) bool
	stopped bool
}

// here yields a place, which it releases, and what lies below it.
func (d *dirWalk) here(p place) {
	defer p.release()
	if !d.yield(live.Dir{Path: p.path, Hears: d.hears(p)}) || d.look.ctx.Err() != nil {
		d.stopped = true
		return
	}
	for _, name := range d.folders(p) {
		if next, ok := d.inside(p, name); ok {
			d.here(next)
		}
		if d.stopped {
			return
		}
	}
}

// rules adds those of the place itself. Where they cannot be read the walk does not go in.
func (d *dirWalk) rules(p place) (place, bool) {
	if !d.look.honour {
		return p, true
	}
	rules, err := d.look.rulesIn(p, &d.reader)
	p.rules = p.rules.push(p.path, rules)
	return p, err == nil
}

// inside opens the directory called name, if the walk would.
func (d *dirWalk) inside(p place, name string) (place, bool) {
	in, out, ok := d.look.inner(p.in, p.out, name)
	if !ok || p.depth == maxDepth || p.rules.ignored(p.path, name, true) {
		return place{}, false
	}
	f, err := d.look.disk.openFolder(p.fd, name, false, unix.O_NOFOLLOW)
	if err != nil {
		return place{}, false
	}
	next, ok := d.rules(place{folder: f, path: joinPath(p.path, name), in: in, out: out, rules: p.rules, depth: p.depth + 1})
	if !ok {
		f.release()
	}
	return next, ok
}

// folders are the names of a place's directories that may be entered. One that cannot be listed has none: the look
// says why.
func (d *dirWalk) folders(p place) []string {
	if !d.look.glob.deeper(p.in) {
		return nil
	}
	if names, direct := d.look.glob.literals(p.in); direct {
		return names
	}
	f, err := d.look.disk.openFolder(p.fd, ".", true, 0)
	if err != nil {
		return nil
	}
	defer f.release()
	all, err := d.look.disk.list(d.look.ctx, f.fd)
	if err != nil {
		return nil
	}
	var names []string
	for i, name := range all.names {
		if all.kinds[i] == unix.DT_DIR || all.kinds[i] == unix.DT_UNKNOWN {
			names = append(names, name)
		}
	}
	return names
}

// hears says of the entries of a directory whether what happens to them matters. Where a file can match, all do, save
// those left out, because a link that matches may lead through any other; where it is only passed through, those do
// through which the glob goes on. It keeps nothing of the look.
func (d *dirWalk) hears(p place) func(name string) bool {
	patterns := &look{glob: d.look.glob, exclude: d.look.exclude}
	in, out, rules, path := p.in, p.out, p.rules, p.path
	if !patterns.glob.endsIn(in) {
		return func(name string) bool {
			_, _, ok := patterns.inner(in, out, name)
			return ok
		}
	}
	return func(name string) bool {
		return !ignoredFile(name) && !ignoredDir(name) &&
			!patterns.exclude.matches(out, name) &&
			(!rules.ignored(path, name, false) || !rules.ignored(path, name, true))
	}
}

// endsIn reports whether a file where c is can match; deeper, whether one in a directory there can.
func (g *glob) endsIn(c cursor) bool {
	for _, p := range c {
		if int(p.seg) == len(g.alts[p.alt])-1 {
			return true
		}
	}
	return false
}

func (g *glob) deeper(c cursor) bool {
	for _, p := range c {
		if row := g.alts[p.alt]; row[p.seg].kind == anyDepth || int(p.seg) < len(row)-1 {
			return true
		}
	}
	return false
}
