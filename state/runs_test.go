package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
)

var epoch = time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)

// What the first format's loader requires, with nothing filled in by the caller.
func TestRunFilePlaceholders(t *testing.T) {
	w := newWorkspace(t)
	f := &RunFile{Run: Run{ID: "rn-1", Step: "backup", Status: Queued, Timestamps: RunTimes{CreatedAt: ToMillis(epoch)}}}
	noError(t, w.CreateRun(f))
	got, err := os.ReadFile(w.path("runs/rn-1.json"))
	noError(t, err)
	self := Self()
	owner := fmt.Sprintf("\"pid\": %d,", self.PID)
	if self.BootID != "" {
		owner += fmt.Sprintf("\n  \"bootId\": %q,", self.BootID)
	}
	if self.StartTicks != 0 {
		owner += fmt.Sprintf("\n  \"startTicks\": %d,", self.StartTicks)
	}
	want := `{
  "version": 2,
  ` + owner + `
  "run": {
    "id": "rn-1",
    "step": "backup",
    "queueId": "marbles",
    "status": "queued",
    "input": null,
    "output": null,
    "error": null,
    "tags": {},
    "metadata": {},
    "extensions": {},
    "snapshot": {},
    "timestamps": {
      "createdAt": 1796058000000,
      "startedAt": null,
      "completedAt": null,
      "failedAt": null
    }
  },
  "frames": [],
  "jobs": [],
  "queue": {
    "id": "marbles",
    "name": "marbles",
    "status": "active",
    "createdAt": 1796058000000,
    "extensions": {},
    "lastError": null
  },
  "suspensions": []
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if f.Owner() != self {
		t.Errorf("owner %v, want %v", f.Owner(), self)
	}
}

func TestCreateRunOnce(t *testing.T) {
	w := newWorkspace(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i := range 16 {
		wg.Go(func() {
			f := testRun("rn-1", Queued, epoch)
			f.Run.Step = fmt.Sprint("w", i)
			err := w.CreateRun(f)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("created %d times", made)
	}
	names, err := os.ReadDir(w.path(runsDir))
	noError(t, err)
	if len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// A file of the first format, with much that we do not know, survives a rewrite.
func TestRunFileOfFirstFormat(t *testing.T) {
	const text = `{
  "version": 1,
  "pid": 12,
  "run": {
    "id": "rn-old", "step": "release", "queueId": "qu-1", "status": "suspended",
    "input": {"n": 9007199254740993, "s": "\u003c"}, "output": null,
    "error": {"name": "Error", "message": "m", "stack": "s", "cause": [1]},
    "tags": {"a": "b"}, "metadata": {"m": 1}, "extensions": {"triggerId": "k", "more": true},
    "snapshot": {"tree": []}, "timestamps": {"createdAt": 1.7e12, "startedAt": null, "completedAt": null, "failedAt": null, "parkedAt": 5},
    "definition": {"name": "release"}, "links": {"jobId": "jb-1"}
  },
  "frames": [{"runId": "rn-old", "cursor": 0, "at": 1, "payload": {"kind": "log", "value": "\ud83d\ude00"}}],
  "jobs": [{"id":"jb-1","definition":{"name":"d"},"input":null,"status":"waiting","timestamps":{"createdAt":1}}],
  "queue": {"id": "qu-1", "name": "q", "status": "paused", "createdAt": 1, "extensions": {"e": 1}, "lastError": null, "weight": 3},
  "suspensions": [{"id":"su-1","runId":"rn-old","kind":"k","name":"n","occurrence":0,"reason":"r","request":{},"resolution":null,"revision":1,"status":"cancelled","stepPath":["release"],"timestamps":{"createdAt":1,"resolvedAt":null}}],
  "marbles": {"ledger": {}, "literals": {}, "session": {"id": "s"}},
  "later": {"x": [null]}
}`
	w := newWorkspace(t)
	path := w.path("runs/rn-old.json")
	noError(t, os.WriteFile(path, []byte(text), 0o600))
	f, err := w.Run("rn-old")
	noError(t, err)
	if got := f.Run.Timestamps.CreatedAt; got != 1700000000000 {
		t.Errorf("created at %d", got)
	}
	noError(t, w.WriteRun(f))
	var before, after map[string]any
	noError(t, decode([]byte(text), &before))
	rewritten, err := os.ReadFile(path)
	noError(t, err)
	noError(t, decode(rewritten, &after))
	before["version"] = 2.0
	for _, ours := range []string{"pid", "bootId", "startTicks"} {
		delete(before, ours)
		delete(after, ours)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("rewritten (-want +got):\n%s", diff)
	}
	if !bytes.Contains(rewritten, []byte("9007199254740993")) {
		t.Error("a big number lost digits")
	}
	f, err = w.Run("rn-old")
	noError(t, err)
	noError(t, w.WriteRun(f))
	if again, _ := os.ReadFile(path); !bytes.Equal(rewritten, again) {
		t.Errorf("a second rewrite changed it to %s", again)
	}
}

func TestRunDamaged(t *testing.T) {
	tests := []struct {
		name, text, want string
		version          bool
	}{
		{name: "cut", text: `{"version":2,"run":{"id":"rn-1"`},
		{name: "empty", text: ``, want: "empty"},
		{name: "hollow", text: `{}`, want: "run is missing"},
		{name: "no object", text: `[]`, want: "not a JSON object"},
		{name: "another run", text: `{"run":{"id":"rn-2","status":"complete"}}`, want: `it holds run "rn-2"`},
		{name: "unknown status", text: `{"run":{"id":"rn-1","status":"parked"}}`, want: `unknown status "parked"`},
		{name: "later version", text: `{"version":3,"run":{"id":"rn-1","status":"parked"}}`, version: true},
		{name: "later version of another shape", text: `{"version":3,"run":[]}`, version: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			path := w.path("runs/rn-1.json")
			noError(t, os.WriteFile(path, []byte(tt.text), 0o600))
			noError(t, w.CreateRun(testRun("rn-0", Running, epoch)))
			_, err := w.Run("rn-1")
			check := func(what string, err error) {
				var damaged *DamagedError
				if errors.Is(err, ErrVersion) != tt.version || errors.As(err, &damaged) == tt.version {
					t.Errorf("%s: %v", what, err)
				} else if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %s", what, err, tt.want)
				}
			}
			check("Run", err)
			list, err := w.Runs(RunQuery{})
			noError(t, err)
			files, damaged, err := w.Unsettled()
			noError(t, err)
			if len(list.Runs) != 1 || list.Total != 2 || len(files) != 1 || len(damaged) != 1 || len(list.Damaged) != 1 {
				t.Fatalf("it costs more than itself: %+v, %v, %v", list, files, damaged)
			}
			check("Runs", list.Damaged[0])
			check("Unsettled", damaged[0])
			noError(t, w.RebuildIndex())
			if text, _ := os.ReadFile(path); string(text) != tt.text {
				t.Error("the file was changed")
			}
		})
	}
}

func TestWriteRunKeepsBadBytesOut(t *testing.T) {
	w := newWorkspace(t)
	f := testRun("rn-1", Failed, epoch)
	f.Run.Error.Message = "exit \xff\xfe"
	f.Run.Input = jsontext.Value(`"\ud800"`)
	noError(t, w.WriteRun(f))
	got, err := w.Run("rn-1")
	noError(t, err)
	if got.Run.Error.Message != "exit \ufffd\ufffd" || string(got.Run.Input) != `"\ud800"` {
		t.Errorf("got %q, %s", got.Run.Error.Message, got.Run.Input)
	}
	f.Run.Status = "parked"
	if err := w.WriteRun(f); err == nil || !strings.Contains(err.Error(), "parked") {
		t.Errorf("unknown status: %v", err)
	}
	f.Run.Status, f.Run.Input = Failed, jsontext.Value(`{`)
	if err := w.WriteRun(f); err == nil || !strings.Contains(err.Error(), "rn-1.json") {
		t.Errorf("input that is no JSON: %v", err)
	}
	if got, err := w.Run("rn-1"); err != nil || got.Run.Status != Failed {
		t.Errorf("the refused write changed the file: %v", err)
	}
}

// history fills a workspace with n runs, oldest first, one a minute.
func history(t testing.TB, w *Workspace, n int) []RunSummary {
	t.Helper()
	var all []RunSummary
	for i := range n {
		at := epoch.Add(time.Duration(i) * time.Minute)
		f := testRun(NewRunID(at), Complete, at)
		switch i % 7 {
		case 3:
			f = testRun(f.Run.ID, Failed, at)
			f.Run.Error.Message = "tab\tand\nline, \"quoted\" " + strings.Repeat("ü", 300)
		case 5:
			f = testRun(f.Run.ID, Running, at)
			f.Run.Step = "sweep"
		case 6:
			f.Run.Extensions.TriggerID = ""
			f.Run.Step = "\"odd\t\\name\xc3\xa9"
		}
		noError(t, w.WriteRun(f))
		all = append(all, f.Summary())
	}
	return all
}

func TestRuns(t *testing.T) {
	w := newWorkspace(t)
	all := history(t, w, 100)
	newest := slices.Clone(all)
	slices.Reverse(newest)
	where := func(keep func(RunSummary) bool) []RunSummary {
		return slices.DeleteFunc(slices.Clone(newest), func(s RunSummary) bool { return !keep(s) })
	}
	tests := []struct {
		name string
		q    RunQuery
		want []RunSummary
	}{
		{"all", RunQuery{}, newest},
		{"page", RunQuery{Limit: 7}, newest[:7]},
		{"one", RunQuery{Limit: 1}, newest[:1]},
		{"limit above", RunQuery{Limit: 1000}, newest},
		{"next page", RunQuery{Limit: 7, Before: newest[6].ID}, newest[7:14]},
		{"before the first", RunQuery{Before: all[0].ID}, nil},
		{"name", RunQuery{Name: "sweep"}, where(func(s RunSummary) bool { return s.Name == "sweep" })},
		{"name, limited", RunQuery{Name: "sweep", Limit: 3}, where(func(s RunSummary) bool { return s.Name == "sweep" })[:3]},
		{"odd name", RunQuery{Name: "\"odd\t\\name\xc3\xa9"}, where(func(s RunSummary) bool { return s.Key == "" })},
		{"key", RunQuery{Key: "backup-1becafa2"}, where(func(s RunSummary) bool { return s.Key != "" })},
		{"status", RunQuery{Statuses: []Status{Failed}}, where(func(s RunSummary) bool { return s.Status == Failed })},
		{"unsettled", RunQuery{Statuses: []Status{Queued, Running}}, where(func(s RunSummary) bool { return s.Status == Running })},
		{"both", RunQuery{Statuses: []Status{Running, Failed}, Limit: 9}, where(func(s RunSummary) bool { return s.Status == Running || s.Status == Failed })[:9]},
		{"since", RunQuery{Since: newest[4].Created}, newest[:5]},
		{"nothing", RunQuery{Name: "none"}, nil},
	}
	indexed := func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				got, err := w.Runs(tt.q)
				noError(t, err)
				if diff := cmp.Diff(&RunList{Runs: tt.want, Total: 100}, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
		t.Run("overview", func(t *testing.T) {
			top, unsettled, err := w.Overview(5)
			noError(t, err)
			if diff := cmp.Diff(newest[:5], top.Runs); diff != "" || top.Total != 100 {
				t.Errorf("newest (-want +got):\n%s", diff)
			}
			running := where(func(s RunSummary) bool { return s.Status == Running })
			if diff := cmp.Diff(running, unsettled.Runs); diff != "" {
				t.Errorf("unsettled (-want +got):\n%s", diff)
			}
		})
		t.Run("unsettled files", func(t *testing.T) {
			files, damaged, err := w.Unsettled()
			noError(t, err)
			var got []RunSummary
			for _, f := range files {
				got = append(got, f.Summary())
			}
			slices.Reverse(got)
			want := where(func(s RunSummary) bool { return s.Status == Running })
			if diff := cmp.Diff(want, got); diff != "" || len(damaged) != 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// The answers are the same whatever the index holds: it is never the truth.
	path := w.path(indexFile)
	whole, err := os.ReadFile(path)
	noError(t, err)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	halves := bytes.Join(lines[:40], nil)
	states := map[string][]byte{
		"whole":        whole,
		"missing":      nil,
		"empty":        {},
		"half of it":   halves,
		"torn":         whole[:len(whole)*2/3],
		"merged":       bytes.ReplaceAll(whole, []byte("\n"), nil),
		"some merged":  bytes.Join(lines, lines[3][:20]),
		"twice":        append(slices.Clone(whole), whole...),
		"garbage":      append([]byte("\x00\x00\t\t\t\n\n\ngarbage\n"), whole...),
		"changed bits": flipBits(whole),
		"others' runs": append(appendIndexLine(nil, &RunSummary{ID: "rn-gone", Status: Complete}), whole...),
	}
	for name, text := range states {
		t.Run(name, func(t *testing.T) {
			noError(t, os.RemoveAll(path))
			if text != nil {
				noError(t, os.WriteFile(path, text, 0o600))
			}
			indexed(t)
			t.Run("rebuilt", func(t *testing.T) {
				noError(t, w.RebuildIndex())
				indexed(t)
				x := w.readIndex()
				for _, s := range all {
					if x.has(s.ID) != s.Status.Settled() {
						t.Errorf("%s is %s, indexed %t", s.ID, s.Status, x.has(s.ID))
					}
				}
			})
		})
	}
}

// flipBits damages every third line or so.
func flipBits(text []byte) []byte {
	text = slices.Clone(text)
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		text[random.IntN(len(text))] ^= 1 << random.IntN(8)
	}
	return text
}

func TestIndexOrder(t *testing.T) {
	line := func(id string, s Status, name string) []byte {
		return appendIndexLine(nil, &RunSummary{ID: id, Status: s, Name: name})
	}
	x := scanIndex(bytes.Join([][]byte{
		line("rn-1", Complete, "first"), line("rn-2", Failed, "first"), line("rn-1", Failed, "last"), line("rn-2", Queued, "again"),
	}, nil))
	if s, ok := x.summary("rn-1"); !ok || s.Status != Failed || s.Name != "last" {
		t.Errorf("rn-1: %+v, %t", s, ok)
	}
	if x.has("rn-2") {
		t.Error("a run that was taken out is still in")
	}
	if x.has("rn-3") || x.has("") || (&index{}).has("rn-1") {
		t.Error("a run from nowhere")
	}
}

func TestRebuildIndexDropsDeadLines(t *testing.T) {
	w := newWorkspace(t)
	all := history(t, w, 14)
	path := w.path(indexFile)
	var dead []byte
	for i := range 3000 {
		dead = appendIndexLine(dead, &RunSummary{ID: fmt.Sprint("rn-", i), Status: Complete})
	}
	noError(t, w.appendIndex(dead), w.RebuildIndex())
	text, err := os.ReadFile(path)
	noError(t, err)
	settled := 0
	for _, s := range all {
		if s.Status.Settled() {
			settled++
		}
	}
	if got := bytes.Count(text, []byte("\n")); got != settled {
		t.Errorf("%d lines, want %d", got, settled)
	}
	noError(t, w.RebuildIndex())
	if again, _ := os.ReadFile(path); !bytes.Equal(text, again) {
		t.Error("nothing was stale, but it was written")
	}
}

// A disk that is too full for the index still has a durable run.
func TestIndexThatCannotBeWritten(t *testing.T) {
	w := newWorkspace(t)
	noError(t, os.Mkdir(w.path(indexFile), 0o700))
	noError(t, w.WriteRun(testRun("rn-1", Complete, epoch)))
	list, err := w.Runs(RunQuery{})
	noError(t, err)
	if len(list.Runs) != 1 {
		t.Errorf("runs %v", list)
	}
	if err := w.RebuildIndex(); err == nil {
		t.Error("RebuildIndex says nothing")
	}
}

func TestConcurrentRuns(t *testing.T) {
	w := newWorkspace(t)
	var wg sync.WaitGroup
	const writers, each = 16, 20
	for range writers {
		wg.Go(func() {
			for range each {
				f := testRun(NewRunID(time.Now()), Queued, time.Now())
				if err := w.CreateRun(f); err != nil {
					t.Error(err)
				}
				for _, s := range []Status{Running, Complete} {
					f.Run.Status = s
					if err := w.WriteRun(f); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			list, err := w.Runs(RunQuery{})
			if err != nil || len(list.Damaged) > 0 {
				t.Error(err, list)
			}
		}
	})
	wg.Wait()
	x := w.readIndex()
	if x.all != writers*each {
		t.Errorf("index has %d lines, want %d", x.all, writers*each)
	}
	files, damaged, err := w.Unsettled()
	noError(t, err)
	if len(files)+len(damaged) != 0 {
		t.Errorf("unsettled %v, damaged %v", files, damaged)
	}
	swept, err := w.Sweep()
	noError(t, err)
	if len(swept) != 0 {
		t.Errorf("temporary files %v", swept)
	}
}

func TestNewRunID(t *testing.T) {
	seen := make(map[string]bool)
	last := ""
	for i := range 2000 {
		at := epoch.Add(time.Duration(i) * 700 * time.Nanosecond)
		id := NewRunID(at)
		if seen[id] || id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		seen[id], last = true, id
		parsed, err := ulid.ParseStrict(strings.TrimPrefix(id, "rn-"))
		noError(t, err)
		if got := ulid.Time(parsed.Time()); !got.Equal(at.Truncate(time.Millisecond)) || id != strings.ToLower(id) {
			t.Fatalf("%s has the time %v, want %v", id, got, at)
		}
	}
	for _, at := range []time.Time{{}, time.Unix(-5, 0), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if id := NewRunID(at); len(id) != len("rn-")+26 || id == NewRunID(at) {
			t.Errorf("%v: %s", at, id)
		}
	}
}

func TestFindRun(t *testing.T) {
	w := newWorkspace(t)
	ids := []string{
		"rn-01jdzkq2m0aaaaaaaaaaaaaaa1", "rn-01jdzkq2m0aaaaaaaaaaaaaaa2", "rn-01jdzkr000bbbbbbbbbbbbbbb2",
		"rn-01jdzk", "rn-01jdzks1", "rn-01jdzks2", "rn-01jdzks3", "rn-OldStyle-X",
	}
	for _, id := range ids {
		noError(t, w.CreateRun(testRun(id, Complete, epoch)))
	}
	tests := []struct {
		text, want string
		err        error
		list       string
	}{
		{text: ids[0], want: ids[0]},
		{text: strings.ToUpper(ids[0]), want: ids[0]},
		{text: "01jdzkq2m0aaaaaaaaaaaaaaa1", want: ids[0]},
		{text: "aaaaaa1", want: ids[0]},
		{text: "rn-aaaaaa1", want: ids[0]},
		{text: "AAA1", want: ids[0]},
		{text: "rn-01jdzkr", want: ids[2]},
		{text: "01JDZKR", want: ids[2]},
		{text: "01jdzk", want: "rn-01jdzk"}, // the whole id wins over prefixes
		{text: "oldstyle", want: "rn-OldStyle-X"},
		{text: "-x", want: "rn-OldStyle-X"},
		{text: "rn-oldstyle-x", want: "rn-OldStyle-X"},
		{text: "2", err: ErrAmbiguousRun, list: ids[1] + ", " + ids[2] + ", rn-01jdzks2"},
		{text: "01jd", err: ErrAmbiguousRun, list: " and 2 more"},
		{text: "", err: ErrUnknownRun},
		{text: "rn-", err: ErrUnknownRun},
		{text: "zzz", err: ErrUnknownRun},
		{text: "jdzkr", err: ErrUnknownRun}, // in the middle
		{text: "../runs/rn-01jdzk", err: ErrUnknownRun},
		{text: "*", err: ErrUnknownRun},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := w.FindRun(tt.text)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
			if tt.list != "" && !strings.HasSuffix(err.Error(), tt.list) {
				t.Errorf("error %q, want …%s", err, tt.list)
			}
		})
	}
}

func TestReadNames(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 1200 {
		name := fmt.Sprintf("%s-%d", strings.Repeat("é", i%100), i)
		noError(t, os.WriteFile(dir+"/"+name+".json", nil, 0o600))
		want = append(want, name)
	}
	noError(t, os.WriteFile(dir+"/.json", nil, 0o600), os.WriteFile(dir+"/x.jso", nil, 0o600), os.WriteFile(dir+"/x.json.tmp", nil, 0o600))
	got, err := readNames(dir, ".json")
	noError(t, err)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readNames(dir+"/none", ".json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := readNames(dir+"/x.jso", ".json"); err == nil {
		t.Error("a file was listed")
	}
}
