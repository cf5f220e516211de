package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// putSettled writes a run that ended a second after it was created, and its journal.
func putSettled(t testing.TB, w *Workspace, name, key string, at time.Time) string {
	t.Helper()
	f := testRun(NewRunID(at), Complete, at)
	f.Run.Step, f.Run.Extensions.TriggerID = name, key
	noError(t, w.WriteRun(f))
	putOutput(t, w, f.Run.ID)
	return f.Run.ID
}

func putOutput(t testing.TB, w *Workspace, id string) {
	t.Helper()
	text := `{"kind":"start","version":1,"run":"` + id + `","name":"x","pid":1,"at":"2026-11-30T17:00:00.000Z"}` + "\n" +
		`{"kind":"end","at":"2026-11-30T17:00:01.000Z","status":"complete","result":null}` + "\n"
	noError(t, os.WriteFile(w.path(outputDir, id+journalExt), []byte(text), 0o600))
}

func mustPlan(t testing.TB, w *Workspace, k Keep, now time.Time) *PrunePlan {
	t.Helper()
	p, err := w.PlanPrune(t.Context(), k, now)
	noError(t, err)
	return p
}

func mustPrune(t testing.TB, w *Workspace, p *PrunePlan) {
	t.Helper()
	_, err := w.Prune(t.Context(), p)
	noError(t, err)
}

// left are the run files and the journals there are.
func left(t testing.TB, w *Workspace) (runs, journals []string) {
	t.Helper()
	runs, err := listRecords(w.path(runsDir))
	noError(t, err)
	journals, err = readNames(w.path(outputDir), journalExt)
	noError(t, err)
	slices.Sort(runs)
	slices.Sort(journals)
	return runs, journals
}

// C66: a day is kept of a schedule with 288 runs a day.
func TestRetentionOfThreeDays(t *testing.T) {
	w := newWorkspace(t)
	keep := Keep{Runs: 1000, Age: 24 * time.Hour, Bytes: 2 << 30}
	now := epoch
	for i := range 3 * 288 {
		now = epoch.Add(time.Duration(i) * 5 * time.Minute)
		putSettled(t, w, "scan", "scan-1", now)
		if i%96 == 95 {
			mustPrune(t, w, mustPlan(t, w, keep, now.Add(2*time.Second)))
		}
	}
	runs, journals := left(t, w)
	if len(runs) > 289 || len(runs) < 287 || !slices.Equal(runs, journals) {
		t.Errorf("%d runs and %d journals are left", len(runs), len(journals))
	}
	keep.Bytes = 100 << 10
	mustPrune(t, w, mustPlan(t, w, keep, now))
	var total int64
	runs, _ = left(t, w)
	for _, id := range runs {
		total += w.runSize(id)
	}
	if total > keep.Bytes || total < keep.Bytes/2 {
		t.Errorf("%d bytes are left of %d", total, keep.Bytes)
	}
}

func TestPlanPrune(t *testing.T) {
	w := newWorkspace(t)
	at := func(day int) time.Time { return epoch.Add(time.Duration(day) * 24 * time.Hour) }
	var backup []string
	for day := range 5 {
		backup = append(backup, putSettled(t, w, "backup", "backup-1", at(day)))
	}
	yearly := putSettled(t, w, "yearly", "yearly-1", at(-400))
	sameName := putSettled(t, w, "backup", "other-key", at(-300))
	own := []string{putSettled(t, w, "own", "own-1", at(1)), putSettled(t, w, "own", "own-1", at(2)), putSettled(t, w, "own", "own-1", at(3))}
	unsettled := testRun(NewRunID(at(-500)), Suspended, at(-500))
	noError(t, w.CreateRun(unsettled))

	k := Keep{Runs: 3, Names: map[string]Keep{"own": {Runs: 1}}}
	check := func(k Keep, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		p := mustPlan(t, w, k, at(5))
		var bytes int64
		for _, d := range p.Runs {
			got[d.Run.ID] = d.Why
			bytes += d.Bytes
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("plan of %+v:\n%v, want\n%v", k, got, want)
		}
		if bytes != p.Bytes || len(want) > 0 && bytes == 0 {
			t.Errorf("%d bytes, in all %d", bytes, p.Bytes)
		}
		if p.Kept+len(p.Runs) != 11 {
			t.Errorf("%d kept and %d deleted", p.Kept, len(p.Runs))
		}
	}
	check(Keep{}, map[string]string{})
	check(k, map[string]string{
		backup[0]: "more than 3 of backup", backup[1]: "more than 3 of backup",
		own[0]: "more than 1 of own", own[1]: "more than 1 of own",
	})
	check(Keep{Age: 60 * time.Hour}, map[string]string{
		backup[0]: "older than 60h", backup[1]: "older than 60h", backup[2]: "older than 60h", own[0]: "older than 60h", own[1]: "older than 60h",
	})
	// What something still needs stays, whatever is said.
	noError(t,
		w.WriteKey("backup-1", &KeyRecord{Run: backup[0]}),
		w.WriteMonitor("m", &MonitorRecord{Pending: &PendingLaunch{Workflow: "own", Run: own[0]}}),
		w.Ask(Request{Run: own[1], Action: ActionLook}))
	child := testRun(NewRunID(at(-499)), Running, at(-499))
	child.Run.Links = &RunLinks{ParentRunID: backup[1]}
	child.Run.Step = "backup"
	noError(t, w.CreateRun(child))
	noError(t, os.Remove(w.path(runsDir, unsettled.Run.ID+recordExt)))
	check(Keep{Bytes: 1}, map[string]string{
		backup[2]: "more than 1 B in all", backup[3]: "more than 1 B in all",
	})
	_, _ = yearly, sameName
	// Without an index it is the same.
	noError(t, os.Remove(w.path(indexFile)))
	check(Keep{Bytes: 1}, map[string]string{backup[2]: "more than 1 B in all", backup[3]: "more than 1 B in all"})
}

func TestPruneLooksAgain(t *testing.T) {
	w := newWorkspace(t)
	var ids []string
	for i := range 6 {
		ids = append(ids, putSettled(t, w, "backup", "backup-1", epoch.Add(time.Duration(i)*time.Minute)))
	}
	p := mustPlan(t, w, Keep{Runs: 1}, epoch.Add(time.Hour))
	if len(p.Runs) != 5 {
		t.Fatalf("%d runs in the plan", len(p.Runs))
	}
	reopened, err := w.Run(ids[0])
	noError(t, err)
	reopened.Run.Status = Queued
	noError(t, w.ReopenRun(reopened))
	again, err := w.Run(ids[1])
	noError(t, err)
	again.Run.Timestamps.CompletedAt = ToMillis(epoch.Add(30 * time.Minute))
	noError(t, w.WriteRun(again))
	lock, err := w.LockEdit(t.Context(), ids[2])
	noError(t, err)
	noError(t, w.Ask(Request{Run: ids[3], Action: ActionLook}))
	mustPrune(t, w, p)
	noError(t, lock.Release())
	if runs, _ := left(t, w); !slices.Equal(runs, slices.Concat(ids[:4], ids[5:])) {
		t.Errorf("left: %v of %v", runs, ids)
	}
	files, _, err := w.Unsettled()
	noError(t, err)
	if len(files) != 1 || files[0].Run.ID != ids[0] {
		t.Errorf("the run that was reopened is not known as unsettled: %v", files)
	}
	if _, err := w.Run(ids[4]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", ids[4], err)
	}
}

func TestPruneOrphans(t *testing.T) {
	w := newWorkspace(t)
	kept := putSettled(t, w, "backup", "backup-1", epoch)
	putOutput(t, w, "rn-ended")
	write := func(path, text string, age time.Duration) string {
		t.Helper()
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		at := time.Now().Add(-age)
		noError(t, os.Chtimes(path, at, at))
		return path
	}
	live := fmt.Sprintf(`{"kind":"start","version":1,"run":"rn-live","name":"x","pid":%d,"at":"2026-11-30T17:00:00.000Z"}`+"\n", os.Getpid())
	write(w.path(outputDir, "rn-live.jsonl"), live, 2*time.Hour) // its run file is being written
	write(w.path(outputDir, "rn-young.jsonl"), "", 0)
	write(w.path(cacheDir, "active"), "x", 200*24*time.Hour)
	noError(t, w.WriteKey("active", &KeyRecord{}))
	noError(t, w.Ask(Request{Run: "rn-lost", Action: ActionCancel, At: Stamp{time.Now().Add(-time.Hour)}}))
	noError(t, w.Ask(Request{Run: "rn-new", Of: kept, Action: ActionRestart, At: Stamp{time.Now().Add(-time.Hour)}}))
	want := []string{
		w.path(outputDir, "rn-ended.jsonl"),
		write(w.path(outputDir, "rn-empty.jsonl"), "", 2*time.Hour),
		write(w.path(cacheDir, "gone"), "x", 200*24*time.Hour),
		write(w.path(runsDir, fmt.Sprintf(".x.json.%d-1.tmp", deadPID(t))), "", 0),
		w.path(requestsDir, "rn-lost.json"),
	}
	p := mustPlan(t, w, Keep{}, time.Now())
	slices.Sort(want)
	slices.Sort(p.Orphans)
	if !slices.Equal(p.Orphans, want) {
		t.Fatalf("orphans:\n%s\nwant\n%s", strings.Join(p.Orphans, "\n"), strings.Join(want, "\n"))
	}
	mustPrune(t, w, p)
	if p := mustPlan(t, w, Keep{}, time.Now()); !p.Empty() {
		t.Errorf("left: %v", p)
	}
}

func TestPruneCutsLedgers(t *testing.T) {
	w := newWorkspace(t)
	path := w.path(slotsDir, "backup-1.jsonl")
	var text []byte
	for i := range 12_000 {
		line, err := encodeLine(&SlotEntry{Slot: Stamp{epoch.Add(time.Duration(i) * time.Minute)}, Outcome: SlotRan, Run: "rn-1"})
		noError(t, err)
		text = append(text, line...)
	}
	noError(t, os.WriteFile(path, text, 0o600))
	p := mustPlan(t, w, Keep{}, epoch)
	if !slices.Equal(p.Ledgers, []string{path}) {
		t.Fatal(p.Ledgers)
	}
	// Nothing that is appended meanwhile is lost.
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 500 {
			e := SlotEntry{Slot: Stamp{epoch.Add(time.Duration(20_000+i) * time.Minute)}, Outcome: SlotSkipped}
			if err := w.AppendSlot("backup-1", e, false); err != nil {
				t.Error(err)
			}
		}
	})
	mustPrune(t, w, p)
	mustPrune(t, w, p)
	wg.Wait()
	entries, err := w.Slots("backup-1", 0)
	noError(t, err)
	skipped := 0
	for _, e := range entries {
		if e.Outcome == SlotSkipped {
			skipped++
		}
	}
	if skipped != 500 || len(entries) < 10_000 || len(entries) > 10_500 {
		t.Errorf("%d lines, %d of them appended meanwhile", len(entries), skipped)
	}
}

// Runs that are read, listed, watched and deleted by two at once meanwhile.
func TestPruneBesideOthers(t *testing.T) {
	w := newWorkspace(t)
	for i := range 600 {
		putSettled(t, w, "backup", "backup-1", epoch.Add(time.Duration(i)*time.Minute))
	}
	p := mustPlan(t, w, Keep{Runs: 20}, epoch)
	ctx, stop := context.WithCancel(t.Context())
	var readers, pruners sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			before := ""
			for {
				list, err := w.Runs(RunQuery{Limit: 50, Before: before})
				if err != nil || len(list.Damaged) > 0 {
					t.Error(err, list.Damaged)
					return
				}
				if len(list.Runs) == 0 {
					break
				}
				before = list.Runs[len(list.Runs)-1].ID
			}
		}
	})
	readers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			f := testRun(NewRunID(epoch.Add(100*time.Hour+time.Duration(i)*time.Minute)), Complete, epoch)
			f.Run.Extensions.TriggerID = "backup-1"
			if err := w.WriteRun(f); err != nil {
				t.Error(err)
			}
			if err := w.RebuildIndex(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		pruners.Go(func() {
			if _, err := w.Prune(ctx, p); err != nil {
				t.Error(err)
			}
		})
	}
	pruners.Wait()
	stop()
	readers.Wait()
	mustPrune(t, w, mustPlan(t, w, Keep{Runs: 20}, epoch))
	if runs, journals := left(t, w); len(runs) != 20 || len(journals) > 20 {
		t.Errorf("%d runs and %d journals are left", len(runs), len(journals))
	}
}

// killedFiles ends the process at the n-th removal.
type killedFiles struct {
	osFiles
	left int
}

func (k *killedFiles) remove(name string) error {
	if k.left--; k.left < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return k.osFiles.remove(name)
}

// A process that is killed in the middle leaves journals without a run at most, and the next one removes them.
func TestPruneKilled(t *testing.T) {
	const n = 10
	if dir := os.Getenv("PRUNE_KILLED_DIR"); dir != "" {
		var at int
		_, err := fmt.Sscan(os.Getenv("PRUNE_KILLED_AT"), &at)
		noError(t, err)
		root, err := Open(dir)
		noError(t, err)
		list, err := root.Workspaces()
		noError(t, err)
		w := list[0]
		p := mustPlan(t, w, Keep{Runs: 1}, epoch)
		w.fs = &killedFiles{left: at}
		mustPrune(t, w, p)
		t.Fatal("still here")
	}
	for _, at := range []int{0, 4, n - 1, n, n + 5, 2*n - 3} {
		w := newWorkspace(t)
		noError(t, w.Register(nil, epoch))
		for i := range n {
			putSettled(t, w, "backup", "backup-1", epoch.Add(time.Duration(i)*time.Minute))
		}
		c := exec.Command(os.Args[0], "-test.run=^TestPruneKilled$")
		c.Env = append(os.Environ(), "PRUNE_KILLED_DIR="+w.dir[:strings.LastIndexByte(w.dir, '/')], fmt.Sprintf("PRUNE_KILLED_AT=%d", at))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("at %d: %v\n%s", at, err, out)
		}
		runs, journals := left(t, w)
		for _, id := range runs {
			if !slices.Contains(journals, id) {
				t.Errorf("at %d: run %s has lost its journal", at, id)
			}
		}
		list, err := w.Runs(RunQuery{})
		noError(t, err)
		if len(list.Runs) != len(runs) || len(list.Damaged) != 0 {
			t.Errorf("at %d: %d of %d runs are listed", at, len(list.Runs), len(runs))
		}
		mustPrune(t, w, mustPlan(t, w, Keep{Runs: 1}, epoch))
		if runs, journals := left(t, w); len(runs) != 1 || !slices.Equal(runs, journals) {
			t.Errorf("at %d: left %v and %v", at, runs, journals)
		}
	}
}

// The index is written afresh once it is mostly dead, and what others append meanwhile stays.
func TestPruneRebuildsIndex(t *testing.T) {
	w := newWorkspace(t)
	for i := range 1300 {
		f := testRun(NewRunID(epoch.Add(time.Duration(i)*time.Minute)), Complete, epoch)
		noError(t, os.WriteFile(w.path(runsDir, f.Run.ID+recordExt), must(t, f), 0o600))
	}
	noError(t, w.RebuildIndex())
	reopened := testRun(NewRunID(epoch.Add(-time.Hour)), Complete, epoch)
	noError(t, w.WriteRun(reopened))
	p := mustPlan(t, w, Keep{Runs: 5}, epoch)
	reopened.Run.Status = Running
	noError(t, w.ReopenRun(reopened))
	mustPrune(t, w, p)
	x := w.readIndex()
	if x.all > 10 {
		t.Errorf("%d lines in the index", x.all)
	}
	if x.has(reopened.Run.ID) {
		t.Error("a run that was reopened is settled in the index")
	}
}

func must(t testing.TB, f *RunFile) []byte {
	t.Helper()
	f.complete()
	data, err := encode(f)
	noError(t, err)
	return data
}

func BenchmarkPlanPrune100k(b *testing.B) {
	w := benchWorkspace(b, 100_000, 8)
	for _, k := range []Keep{{Runs: 50_000}, {Runs: 50_000, Bytes: 2 << 30}} {
		b.Run(fmt.Sprintf("bytes=%d", k.Bytes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := w.PlanPrune(b.Context(), k, epoch)
				if err != nil || len(p.Runs) < 49_000 {
					b.Fatal(err, len(p.Runs))
				}
			}
		})
	}
}
