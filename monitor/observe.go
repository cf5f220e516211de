package monitor

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"marbles/state"
)

// firstFiles reports whether prev holds no observation of files: there is none, or the
// key watched a URL before.
func firstFiles(prev *state.MonitorRecord) bool {
	return prev == nil || len(prev.Files) == 0 && prev.Hash != ""
}

// difference is what a look found against what was committed.
type difference struct {
	added, modified, removed []File
	paths                    []string
	dropped                  int // committed files that the patterns no longer select
	newest                   time.Time
	next                     map[string]string // the files of the next record
}

// compare compares what was seen with what was committed. A committed file that the
// patterns no longer select has not gone: it leaves the record and is no change.
func (l *look) compare() *difference {
	files := 0
	for _, s := range l.scans {
		files += s.count()
	}
	d := &difference{added: []File{}, modified: []File{}, removed: []File{}, next: make(map[string]string, max(files, len(l.base.files)))}
	if len(l.base.files) == 0 {
		d.added, d.paths = make([]File, 0, files), make([]string, 0, files)
	}
	for _, s := range l.scans {
		for name, k := range s.all {
			if k == nil || k.state == hollow {
				continue
			}
			path := joinPath(s.path, name)
			old, known := l.base.files[path]
			if known && hexEqual(&k.digest, old) {
				d.next[keyOf(path)] = old
				continue
			}
			sum := hex.EncodeToString(k.digest[:])
			d.next[keyOf(path)] = sum
			if known {
				d.modified = append(d.modified, fileOf(path, sum))
			} else {
				d.added = append(d.added, fileOf(path, sum))
			}
			d.paths = append(d.paths, path)
			if t := k.sig.changed(); t.After(d.newest) {
				d.newest = t
			}
		}
	}
	l.unseen(func(path string) {
		sum := l.base.files[path]
		switch {
		case !l.selects(path):
			d.dropped++
		case l.inDoubt(path):
			d.next[keyOf(path)] = sum
		default:
			d.removed = append(d.removed, fileOf(path, sum))
			d.paths = append(d.paths, path)
		}
	})
	return d
}

// observe is what the look has found, which is not all as it was.
func (l *look) observe() (*Observation, error) {
	d := l.compare()
	mounts := l.nextMounts()
	o := &Observation{
		First:   firstFiles(l.prev),
		Changed: len(d.paths) > 0,
		Newest:  d.newest,
		Summary: summary(len(d.added), len(d.modified), len(d.removed), len(d.next)),
	}
	if !o.Changed && !o.First && d.dropped == 0 && maps.Equal(mounts, l.base.mounts) {
		return o, nil
	}
	o.Record = &state.MonitorRecord{Version: 1, Files: d.next}
	for m := range mounts {
		o.Record.Mounts = append(o.Record.Mounts, keyOf(m))
	}
	slices.Sort(o.Record.Mounts)
	if l.prev != nil {
		o.Record.Unknown = l.prev.Unknown
	}
	if !o.Changed {
		return o, nil
	}
	for _, files := range [][]File{d.added, d.modified, d.removed} {
		slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	}
	var err error
	o.Change, err = json.Marshal(FilesChange{Kind: KindFiles, Added: d.added, Modified: d.modified, Removed: d.removed})
	if err != nil {
		return nil, fmt.Errorf("cannot write the change of %s: %w", l.glob.text, err)
	}
	slices.Sort(d.paths)
	o.Paths = []byte(strings.Join(d.paths, "\x00") + "\x00")
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
