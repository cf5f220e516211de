package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// audit looks at everything on disk. dead says that no marbles runs: then no lock is held.
func (w *crashWorld) audit(dead bool) {
	w.t.Helper()
	ws := w.state()
	begun, handled := w.begun(), w.unhandled(ws) == ""
	w.auditFiles(ws)
	w.auditLocks(ws, dead)
	ids := map[string]bool{}
	for _, name := range w.names(ws, "runs", ".json") {
		ids[name] = true
		w.auditRun(ws, name)
	}
	for id := range w.files {
		if !ids[id] {
			w.problem(id, "its file is gone")
		}
	}
	for _, id := range w.names(ws, "output", ".jsonl") {
		w.auditJournal(ws, id, begun[id])
	}
	for id, steps := range begun {
		w.auditBegun(ws, id, steps)
	}
	w.auditSlots(ws, begun)
	w.auditLaunches(handled)
	w.auditEchoes(ws)
}

// begun is how often each step of each run began, by what the steps themselves say.
func (w *crashWorld) begun() map[string]map[string]int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "begun"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	begun := map[string]map[string]int{}
	for line := range strings.Lines(string(text)) {
		id, step, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || !strings.HasPrefix(id, "rn-") {
			w.t.Fatalf("a step wrote %q", line)
		}
		if begun[id] == nil {
			begun[id] = map[string]int{}
		}
		begun[id][step]++
	}
	return begun
}

// names lists the files of one ending in a folder, without the ending and without temporary ones.
func (w *crashWorld) names(ws *state.Workspace, dir, ext string) []string {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(ws.Dir(), dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ext); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// auditFiles reads every file as any tool would: snapshots are whole JSON, lines of journals and ledgers too, and what was
// appended stays.
func (w *crashWorld) auditFiles(ws *state.Workspace) {
	w.t.Helper()
	err := filepath.WalkDir(ws.Dir(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") || filepath.Base(filepath.Dir(path)) == "locks" ||
			filepath.Base(filepath.Dir(path)) == "cache" {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".json":
			if !jsontext.Value(data).IsValid() {
				w.t.Errorf("%s is no JSON: %q", path, data)
			}
		case ".jsonl":
			w.auditAppended(path, data)
		case ".index":
		default:
			w.t.Errorf("%s should not be there", path)
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	if _, err := ws.Record(); err != nil && !errors.Is(err, fs.ErrNotExist) { // a kill before all else
		w.t.Error(err)
	}
	if _, err := ws.Since(); err != nil {
		w.t.Error(err)
	}
	for _, key := range w.names(ws, "schedules", ".json") {
		rec, err := ws.Key(key)
		if err != nil {
			w.t.Error(err)
		} else if rec.Run != "" {
			// A start writes both side by side: the run may not be there yet, or never was.
			if _, err := ws.Run(rec.Run); err != nil && !neverBegan(ws, rec) {
				w.t.Errorf("key %s names a run that is lost: %v", key, err)
			}
		}
	}
}

// auditAppended checks a file of lines. A kill may tear a long line, which ends what its process wrote: then comes what
// another process starts with.
func (w *crashWorld) auditAppended(path string, data []byte) {
	w.t.Helper()
	old, ok := w.appended[path]
	if ok && (len(data) < old.size || sha256.Sum256(data[:old.size]) != old.sum) {
		w.t.Errorf("%s has lost what was appended", path)
	}
	w.appended[path] = prefix{len(data), sha256.Sum256(data)}
	torn := false
	for line := range bytes.Lines(data) {
		whole := jsontext.Value(line).IsValid() && line[len(line)-1] == '\n'
		if torn && whole && !bytes.HasPrefix(line, []byte(`{"kind":"start"`)) {
			w.t.Errorf("%s has a torn line in its midst: %s", path, data)
		}
		if torn = !whole && len(bytes.TrimSpace(line)) > 0; torn {
			w.torn++
		}
	}
}

// auditLocks checks that every lock names its holder, and that the next taker can break what a dead process holds.
func (w *crashWorld) auditLocks(ws *state.Workspace, dead bool) {
	w.t.Helper()
	locks, err := ws.Locks()
	if err != nil {
		w.t.Error(err)
	}
	for _, l := range locks {
		switch {
		case l.PID == 0:
			w.t.Errorf("lock %s names no process: %s", l.Name, l.Holder)
		case l.Alive && dead:
			w.t.Errorf("lock %s is held by pid %d, which is dead", l.Name, l.PID)
		}
	}
}

func (w *crashWorld) auditRun(ws *state.Workspace, id string) {
	w.t.Helper()
	f, err := ws.Run(id)
	if err != nil {
		w.t.Error(err)
		return
	}
	// Read after its status: what is settled stays as it is.
	data, err := os.ReadFile(filepath.Join(ws.Dir(), "runs", id+".json"))
	if err != nil {
		w.t.Error(err)
		return
	}
	w.files[id] = f
	sum := sha256.Sum256(data)
	if old, ok := w.settled[id]; ok && old != sum {
		w.problem(id, "it was settled and was changed again")
	} else if !ok && f.Run.Status.Settled() {
		w.settled[id] = sum
		if f.Run.Error != nil && f.Run.Error.Name == "InterruptedError" {
			w.interrupted++
		}
	}
}

// output is what a step of a run prints to its standard output, if it gets to its end.
func output(f *state.RunFile, step string) string {
	switch {
	case f.Run.Step == "count":
		var b strings.Builder
		for i := range 9000 {
			fmt.Fprintln(&b, i+1)
		}
		return b.String()
	case step == "one" || step == "three":
		return step + " of " + f.Run.ID + "\n"
	}
	return ""
}

var outputOf = sync.OnceValue(func() string { return output(&state.RunFile{Run: state.Run{Step: "count"}}, "") })

func (w *crashWorld) auditJournal(ws *state.Workspace, id string, begun map[string]int) {
	w.t.Helper()
	f, err := ws.Run(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Error(err)
		return
	}
	spawned, text := map[string]int{}, map[string]string{}
	var kinds []string
	var end state.Entry
	if err := ws.ReadJournal(id, func(e state.Entry) error {
		kinds, end = append(kinds, e.Kind), e
		switch {
		case e.Kind == "spawn":
			spawned[e.Step]++
		case e.Kind == "text" && e.Stream == state.Stdout:
			text[e.Step] += string(e.Text)
		}
		return nil
	}); err != nil {
		w.t.Error(err)
		return
	}
	if f == nil { // the journal is there before the run is accepted
		w.stray[id] = true
		if len(spawned) > 0 {
			w.problem(id, "it has a journal that says it was spawned, and no file")
		}
		return
	}
	for step, n := range spawned {
		if n > 1 {
			w.problem(id, "step %s was spawned %d times", step, n)
		}
	}
	for step := range begun {
		if spawned[step] == 0 {
			w.problem(id, "step %s began and was not recorded", step)
		}
	}
	complete := f.Run.Status == state.Complete
	for step, got := range text {
		want := output(f, step)
		if !strings.HasPrefix(want, got) || complete && got != want {
			w.problem(id, "step %s printed something else than was recorded", step)
		}
	}
	if complete && f.Run.Step == "steps" && len(spawned) != 3 {
		w.problem(id, "it is complete and spawned %v", spawned)
	}
	if f.Run.Status.Settled() && (end.Kind != "end" || end.Status != f.Run.Status) {
		w.problem(id, "it is %s, its journal ends with %+v", f.Run.Status, end)
	}
}

func (w *crashWorld) auditBegun(ws *state.Workspace, id string, steps map[string]int) {
	w.t.Helper()
	f, err := ws.Run(id)
	if err != nil {
		w.problem(id, "it began and is lost: %v", err)
		return
	}
	w.files[id] = f
	for step, n := range steps {
		if n > 1 {
			w.problem(id, "step %s began %d times", step, n)
		}
	}
	if f.Run.Timestamps.StartedAt == 0 {
		w.problem(id, "it began and is recorded as %s without a start", f.Run.Status)
	}
}

// auditSlots checks that no slot was started twice, and that the ledger says one thing of it.
func (w *crashWorld) auditSlots(ws *state.Workspace, begun map[string]map[string]int) {
	w.t.Helper()
	started := map[string]string{}
	for id, f := range w.files {
		if ext := f.Run.Extensions; !ext.Slot.IsZero() && begun[id] != nil && ext.Kind != "handler" {
			slot := ext.TriggerID + " " + ext.Slot.String()
			if other := started[slot]; other != "" {
				w.problem(id, "its slot %s was also started by %s", slot, other)
			}
			started[slot] = id
		}
	}
	for _, key := range w.names(ws, "slots", ".jsonl") {
		entries, err := ws.Slots(key, 0)
		if err != nil {
			w.t.Error(err)
		}
		seen := map[string]state.SlotEntry{}
		var passed time.Time // slots that ended without a run of their own
		for _, e := range entries {
			if e.Outcome == state.SlotRan && e.Run != "" {
				if _, err := ws.Run(e.Run); err != nil {
					w.t.Errorf("the ledger of %s names a run that is lost: %v", key, err)
				}
			}
			// One that was not started may be due again after a restart: an interval counts from the last finish.
			old, ok := seen[e.Slot.String()]
			again := old.Outcome == state.SlotSkipped || old.Outcome == state.SlotFailed
			if ok && e.Count == 0 && old.Count == 0 && !again {
				w.problem(e.Run, "slot %s of %s ended twice: %+v and %+v", e.Slot, key, old, e)
			}
			seen[e.Slot.String()] = e
			if e.Outcome == state.SlotMerged || e.Outcome == state.SlotMissed {
				first := e.From.Time
				if e.Count == 0 {
					first = e.Slot.Time
				}
				if !first.After(passed) {
					w.t.Errorf("the ledger of %s says again what became of %s: %+v", key, first, entries)
				}
				passed = e.Slot.Time
			}
		}
	}
}

// auditLaunches checks that each version that was committed was launched once.
func (w *crashWorld) auditLaunches(handled bool) {
	w.t.Helper()
	versions, notes := map[int]string{}, 0
	for id, f := range w.files {
		if f.Run.Extensions.Trigger != "launch" {
			continue
		}
		var input struct {
			Version int    `json:"version"`
			From    string `json:"from"`
		}
		if err := json.Unmarshal(f.Run.Input, &input); err != nil {
			w.problem(id, "cannot read its input: %v", err)
		}
		if input.From == "notes" {
			notes++
		} else if other := versions[input.Version]; other != "" {
			w.problem(id, "version %d was also launched as %s", input.Version, other)
		}
		versions[input.Version] = id
	}
	delete(versions, 0)
	if len(versions) > w.version || notes > w.version {
		w.t.Errorf("%d and %d launches of %d versions", len(versions), notes, w.version)
	}
	if handled && (len(versions) != w.version || notes != w.version) {
		w.t.Errorf("%d and %d launches of %d versions, all of which are handled", len(versions), notes, w.version)
	}
}

// auditEchoes checks that what a killed roll has shown is in the journal.
func (w *crashWorld) auditEchoes(ws *state.Workspace) {
	w.t.Helper()
	for _, r := range w.rolls {
		shown := r.output.String()
		shown = shown[:strings.LastIndexByte(shown, '\n')+1]
		if r.tag == "" || !strings.HasPrefix(outputOf(), shown) || shown == "" {
			continue
		}
		found := false
		for id, f := range w.files {
			if !strings.Contains(string(f.Run.Input), r.tag) {
				continue
			}
			found = true
			var text strings.Builder
			if err := ws.ReadJournal(id, func(e state.Entry) error {
				if e.Stream == state.Stdout {
					text.Write(e.Text)
				}
				return nil
			}); err != nil {
				w.t.Error(err)
			}
			if !strings.HasPrefix(text.String(), shown) {
				w.problem(id, "roll has shown %d bytes, of which its journal has %d", len(shown), text.Len())
			}
		}
		if !found {
			w.t.Errorf("roll has shown output of a run that is lost: %q", shown)
		}
	}
	w.rolls = nil
}

// problem reports what is wrong with a run, and shows all there is of it.
func (w *crashWorld) problem(id, format string, args ...any) {
	w.t.Helper()
	var b strings.Builder
	show := func(parts ...string) {
		path := filepath.Join(append([]string{w.state().Dir()}, parts...)...)
		data, err := os.ReadFile(path)
		if len(data) > 8<<10 {
			data = append(data[:4<<10:4<<10], data[len(data)-4<<10:]...)
		}
		if err == nil {
			fmt.Fprintf(&b, "-- %s --\n%s\n", path, data)
		}
	}
	show("runs", id+".json")
	show("output", id+".jsonl")
	if f := w.files[id]; f != nil && f.Run.Extensions.TriggerID != "" {
		show("schedules", f.Run.Extensions.TriggerID+".json")
		show("slots", f.Run.Extensions.TriggerID+".jsonl")
	}
	w.t.Errorf("run %s: %s\n%s", id, fmt.Sprintf(format, args...), b.String())
}

// keep saves the state of a failed round.
func (w *crashWorld) keep() {
	to := os.Getenv("MARBLES_CRASH_KEEP")
	if !w.t.Failed() || to == "" {
		return
	}
	dir, err := os.MkdirTemp(to, "crash-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(w.home))
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "project"), os.DirFS(w.dir))
	}
	w.t.Logf("the state is kept in %s (%v)", dir, err)
}

// neverBegan reports whether a key's record says that its run has not ended, and the run's journal that nothing of it was
// started.
func neverBegan(ws *state.Workspace, rec *state.KeyRecord) bool {
	spawned := false
	err := ws.ReadJournal(rec.Run, func(e state.Entry) error {
		spawned = spawned || e.Kind == "spawn" || e.Kind == "process"
		return nil
	})
	return rec.LastFinish.Before(rec.LastStart.Time) && !spawned && (err == nil || errors.Is(err, fs.ErrNotExist))
}
