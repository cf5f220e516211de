package monitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"marbles/state"
)

// filesSource is what a files monitor watches.
type filesSource struct {
	dir           string // absolute
	glob, exclude *glob
	disk          *disk
	patience      time.Duration // how long an ended look may take to notice
	stuck         atomic.Int32  // looks that were given up and still hang in a system call
}

func newFiles(dir, pattern string, exclude []string) (*filesSource, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", pattern, err)
	}
	g, err := compileGlob(pattern)
	if err != nil {
		return nil, err
	}
	out := &glob{}
	for _, text := range exclude {
		e, err := compileGlob(text)
		if err != nil {
			return nil, fmt.Errorf("exclude: %w", err)
		}
		out.alts = append(out.alts, e.alts...)
	}
	return &filesSource{dir: dir, glob: g, exclude: out, disk: realDisk(), patience: time.Second}, nil
}

// look walks in a goroutine of its own, because a read from a dead file server can
// hang for good and no context reaches it. Such a walk is left behind, at most one per
// source: its goroutine ends when the system call does, and until then every look of
// this source fails at once.
func (s *filesSource) look(ctx context.Context, prev *state.MonitorRecord, log *slog.Logger) (*Observation, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", s.glob.text, stopped(ctx))
	}
	if s.stuck.Load() > 0 {
		return nil, fmt.Errorf("cannot look at %s: the look before still waits for the file system below %s", s.glob.text, s.dir)
	}
	l := s.newLook(ctx, prev)
	ended := make(chan error, 1)
	go func() { ended <- l.walk() }() // waited for below, or left behind as said above
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience := time.NewTimer(s.patience)
		defer patience.Stop()
		select {
		case err = <-ended:
		case <-patience.C:
			s.stuck.Add(1)
			go func() { // ends with the walk
				<-ended
				s.stuck.Add(-1)
			}()
			return nil, fmt.Errorf("cannot look at %s: the file system below %s does not answer: %w", s.glob.text, s.dir, stopped(ctx))
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("cannot look at %s: %w", s.glob.text, stopped(ctx))
	case err != nil:
		return nil, fmt.Errorf("cannot look at %s: %s: %w", s.glob.text, s.dir, err)
	}
	degraded := l.degraded()
	if !l.learnt && len(l.unknown) > 0 {
		return nil, fmt.Errorf("cannot look at %s: %s", s.glob.text, strings.Join(degraded, "; "))
	}
	o, err := l.observe(prev)
	if err != nil {
		return nil, err
	}
	o.Degraded = degraded
	log.Debug("looked at files", "source", s.glob.text, "files", len(l.files), "unknown", len(l.unknown), "changed", o.Changed)
	return o, nil
}

func (s *filesSource) newLook(ctx context.Context, prev *state.MonitorRecord) *look {
	return &look{
		ctx: ctx, disk: s.disk, dir: s.dir, glob: s.glob, exclude: s.exclude,
		names: sync.OnceValue(func() []string {
			if real, err := filepath.EvalSymlinks(s.dir); err == nil && real != s.dir {
				return []string{s.dir, real}
			}
			return []string{s.dir}
		}),
		committed: committedFiles(prev),
		mounts:    map[string]bool{},
		notes:     map[string]string{},
		files:     map[string]string{},
		unknown:   map[string]error{},
	}
}

func committedFiles(prev *state.MonitorRecord) *observed {
	o := &observed{files: map[string]string{}, mounts: map[string]bool{}}
	if prev == nil {
		return o
	}
	for key, sum := range prev.Files {
		o.files[pathOf(key)] = sum
	}
	for _, key := range prev.Mounts {
		o.mounts[pathOf(key)] = true
	}
	return o
}

// firstFiles reports whether prev holds no observation of files: there is none, or the
// key watched a URL before.
func firstFiles(prev *state.MonitorRecord) bool {
	return prev == nil || len(prev.Files) == 0 && prev.Hash != ""
}

// observe compares what was seen with what was committed. A committed file that the
// patterns no longer select has not gone: it leaves the record and is no change.
func (l *look) observe(prev *state.MonitorRecord) (*Observation, error) {
	added, modified, removed := []File{}, []File{}, []File{}
	var paths []string
	next := make(map[string]string, len(l.files))
	for path, sum := range l.files {
		next[keyOf(path)] = sum
		switch old, known := l.committed.files[path]; {
		case !known:
			added = append(added, fileOf(path, sum))
		case old != sum:
			modified = append(modified, fileOf(path, sum))
		default:
			continue
		}
		paths = append(paths, path)
	}
	dropped := 0
	for path, sum := range l.committed.files {
		switch _, seen := l.files[path]; {
		case seen:
		case !l.selects(path):
			dropped++
		case l.inDoubt(path):
			next[keyOf(path)] = sum
		default:
			removed = append(removed, fileOf(path, sum))
			paths = append(paths, path)
		}
	}
	mounts := l.nextMounts()
	o := &Observation{
		First:   firstFiles(prev),
		Changed: len(paths) > 0,
		Summary: summary(len(added), len(modified), len(removed), len(next)),
	}
	if !o.Changed && !o.First && dropped == 0 && maps.Equal(mounts, l.committed.mounts) {
		return o, nil
	}
	o.Record = &state.MonitorRecord{Version: 1, Files: next}
	for m := range mounts {
		o.Record.Mounts = append(o.Record.Mounts, keyOf(m))
	}
	slices.Sort(o.Record.Mounts)
	if prev != nil {
		o.Record.Unknown = prev.Unknown
	}
	if !o.Changed {
		return o, nil
	}
	for _, files := range [][]File{added, modified, removed} {
		slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	}
	var err error
	o.Change, err = json.Marshal(FilesChange{Kind: KindFiles, Added: added, Modified: modified, Removed: removed})
	if err != nil {
		return nil, fmt.Errorf("cannot write the change of %s: %w", l.glob.text, err)
	}
	slices.Sort(paths)
	o.Paths = []byte(strings.Join(paths, "\x00") + "\x00")
	return o, nil
}

func summary(added, modified, removed, files int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{added, "added"}, {modified, "modified"}, {removed, "removed"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	if files == 1 {
		return "no change in 1 file"
	}
	return fmt.Sprintf("no change in %d files", files)
}

// maxDegraded bounds Observation.Degraded.
const maxDegraded = 10

// degraded lists what could not be seen, sorted by path; the last line counts what
// there is no room for.
func (l *look) degraded() []string {
	texts := map[string]string{}
	for path, err := range l.unknown {
		texts[path] = describe(path, reason(err))
	}
	for path, note := range l.notes {
		texts[path] = describe(path, note)
	}
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		lines = append(lines, texts[path])
	}
	if len(lines) > maxDegraded {
		more := len(lines) - (maxDegraded - 1)
		lines = append(lines[:maxDegraded-1], fmt.Sprintf("and %d more", more))
	}
	return lines
}

// nextMounts are the mounts to remember: those met, and those in doubt.
func (l *look) nextMounts() map[string]bool {
	mounts := maps.Clone(l.mounts)
	for m := range l.committed.mounts {
		if l.inDoubt(m) {
			mounts[m] = true
		}
	}
	return mounts
}
