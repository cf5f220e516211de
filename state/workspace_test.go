package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestRegister(t *testing.T) {
	w := newWorkspace(t)
	first, err := w.Record()
	noError(t, err)
	config := "/etc/marbles/jobs"
	later := first.LastSeen.Add(time.Hour)
	noError(t, w.Register(&config, later))
	got, err := w.Record()
	noError(t, err)
	want := &WorkspaceRecord{
		ID: WorkspaceID(w.Project()), Root: w.Project(), Config: &config,
		FirstSeen: first.FirstSeen, LastSeen: Stamp{later}, Version: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	noError(t, w.Register(nil, later))
	if got, err = w.Record(); err != nil || got.Config != nil {
		t.Errorf("config %v, %v, want none", got.Config, err)
	}
	for _, dir := range []string{"", "runs", "output", "schedules", "slots", "monitors", "health", "cache", "locks"} {
		info, err := os.Stat(w.path(dir))
		noError(t, err)
		if info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%q has mode %v", dir, info.Mode())
		}
	}
}

func TestRegisterOverOldFiles(t *testing.T) {
	tests := []struct {
		name, text string
		version    bool // refused
		aside      bool
		firstSeen  string
		has        string
	}{
		{name: "first format", text: `{"id":"%s","root":"%s","config":null,"firstSeen":"2020-01-01T00:00:00.000Z","lastSeen":"2020-01-02T00:00:00.000Z"}`, firstSeen: "2020"},
		{name: "unknown fields", text: `{"id":"%s","root":"%s","version":1,"later":{"a":[1, 2]},"firstSeen":"2020-01-01T00:00:00Z"}`, firstSeen: "2020", has: `"later": {`},
		{name: "later version", text: `{"id":"%s","root":"%s","version":2,"firstSeen":["not","a","text"]}`, version: true},
		{name: "damaged", text: `{"id":"%s","root":"%s`, aside: true},
		{name: "empty", text: ``, aside: true},
		{name: "another's", text: `{"id":"000000000000","root":"/x","version":1}`, aside: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			path := w.path("workspace.json")
			text := tt.text
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, w.ID(), w.Project())
			}
			noError(t, os.WriteFile(path, []byte(text), 0o600))
			err := w.Register(nil, time.Now())
			if errors.Is(err, ErrVersion) != tt.version || (err != nil) != tt.version {
				t.Fatal(err)
			}
			if tt.version {
				if got, _ := os.ReadFile(path); string(got) != text {
					t.Errorf("the file was changed to %s", got)
				}
				if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "version 2") {
					t.Errorf("error %v", err)
				}
				return
			}
			aside, err := os.ReadFile(path + ".damaged")
			if (err == nil) != tt.aside || tt.aside && string(aside) != text {
				t.Errorf("set aside: %q, %v", aside, err)
			}
			rec, err := w.Record()
			noError(t, err)
			if got := rec.FirstSeen.Format("2006"); tt.firstSeen != "" && got != tt.firstSeen {
				t.Errorf("first seen %v", got)
			}
			if got, _ := os.ReadFile(path); !strings.Contains(string(got), tt.has) {
				t.Errorf("%s is lost in %s", tt.has, got)
			}
		})
	}
}

func TestKeyRecord(t *testing.T) {
	w := newWorkspace(t)
	if rec, err := w.Key("backup"); rec != nil || err != nil {
		t.Fatalf("missing: %v, %v", rec, err)
	}
	start := time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)
	rec := &KeyRecord{
		Kind: KindSchedule, Label: `backup {"a":"<"}`, LastStart: Stamp{start}, NextDue: Stamp{start.Add(time.Hour)},
		Unknown: jsontext.Value(`{"later":1e0}`),
	}
	noError(t, w.WriteKey("backup", rec))
	got, err := os.ReadFile(w.path("schedules/backup.json"))
	noError(t, err)
	want := `{
  "version": 1,
  "kind": "schedule",
  "label": "backup {\"a\":\"<\"}",
  "lastStart": "2026-11-30T17:00:00.000Z",
  "lastFinish": null,
  "lastStatus": "",
  "nextDue": "2026-11-30T18:00:00.000Z",
  "later": 1e0
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	back, err := w.Key("backup")
	noError(t, err)
	rec.Version = 1
	if diff := cmp.Diff(rec, back); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	back.LastStatus = "complete"
	noError(t, w.WriteKeyLazily("backup", back))
	if back, err = w.Key("backup"); err != nil || back.LastStatus != "complete" || string(back.Unknown) != `{"later":1e0}` {
		t.Errorf("after the lazy write: %+v, %v", back, err)
	}
	noError(t, w.WriteKey("a.v2", rec), w.WriteKey("a:b", rec))
	noError(t, os.WriteFile(w.path("schedules/notes.txt"), nil, 0o600), os.WriteFile(w.path("schedules/.x.1-2.tmp"), nil, 0o600))
	keys, err := w.Keys()
	noError(t, err)
	if diff := cmp.Diff([]string{"a.v2", "a:b", "backup"}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// Files of the first format, and files that are not what they should be.
func TestReadKey(t *testing.T) {
	tests := []struct {
		name, text string
		want       *KeyRecord
		damaged    bool
		version    bool
	}{
		{
			name: "without kind, label and version", text: `{"lastFinish":"2026-01-01T00:00:00.000Z","lastStatus":"complete"}`,
			want: &KeyRecord{LastFinish: Stamp{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, LastStatus: "complete"},
		},
		{name: "date that is none", text: `{"version":1,"lastFinish":"soon","lastStart":12}`, want: &KeyRecord{Version: 1}},
		{name: "later version", text: `{"version":2}`, version: true},
		{name: "later version of another shape", text: `{"version":7,"kind":{"is":"an object"}}`, version: true},
		{name: "negative version", text: `{"version":-1}`, version: true},
		{name: "version as text", text: `{"version":"1"}`, damaged: true},
		{name: "wrong type", text: `{"version":1,"kind":5}`, damaged: true},
		{name: "empty", text: ``, damaged: true},
		{name: "zeros", text: "\x00\x00\x00", damaged: true},
		{name: "cut", text: `{"version":1,"ki`, damaged: true},
		{name: "null", text: `null`, damaged: true},
		{name: "array", text: `[]`, damaged: true},
		{name: "two values", text: `{"version":1}{"version":1}`, damaged: true},
		{name: "repeated member", text: `{"version":1,"kind":"a","kind":"b"}`, damaged: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			path := w.path("schedules/k.json")
			noError(t, os.WriteFile(path, []byte(tt.text), 0o600))
			got, err := w.Key("k")
			var damaged *DamagedError
			if errors.As(err, &damaged) != tt.damaged || errors.Is(err, ErrVersion) != tt.version {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k.json")
	for i, want := range []string{".damaged", ".damaged-2", ".damaged-3"} {
		noError(t, os.WriteFile(path, []byte{byte('0' + i)}, 0o600))
		got, err := (&DamagedError{Path: path}).SetAside()
		noError(t, err)
		if got != path+want {
			t.Errorf("set aside to %s, want %s", got, path+want)
		}
	}
	wantFiles(t, dir, map[string]string{"k.json.damaged": "0", "k.json.damaged-2": "1", "k.json.damaged-3": "2"})
}

func TestRefusedNamesCreateNothing(t *testing.T) {
	w := newWorkspace(t)
	before := tree(t, w.Dir())
	for name, shown := range map[string]string{
		"":            `""`,
		".":           `"."`,
		"..":          `".."`,
		"a/b":         `"a/b"`,
		"../../x":     `"../../x"`,
		`a\b`:         `"a\\b"`,
		"a\x00b":      `"a\u0000b"`,
		"/etc/passwd": `"/etc/passwd"`,
	} {
		want := fmt.Sprintf(`state key %s must be a plain name: not empty, "." or "..", and without "/", "\" or NUL`, shown)
		_, keyErr := w.Key(name)
		_, monitorErr := w.Monitor(name)
		_, slotsErr := w.Slots(name, 1)
		_, healthErr := w.Health(name)
		_, cacheErr := w.ReadCache(name)
		_, stampErr := w.MonitorStamp(name)
		for what, err := range map[string]error{
			"Key":            keyErr,
			"Monitor":        monitorErr,
			"Slots":          slotsErr,
			"Health":         healthErr,
			"ReadCache":      cacheErr,
			"MonitorStamp":   stampErr,
			"WriteHealth":    w.WriteHealth(name, &Health{}),
			"WriteCache":     w.WriteCache(name, nil),
			"WriteKey":       w.WriteKey(name, &KeyRecord{}),
			"WriteKeyLazily": w.WriteKeyLazily(name, &KeyRecord{}),
			"WriteMonitor":   w.WriteMonitor(name, &MonitorRecord{}),
			"AppendSlot":     w.AppendSlot(name, SlotEntry{}, true),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("%s(%q): %v, want %s", what, name, err, want)
			}
		}
		if _, err := w.Run(name); err == nil {
			t.Errorf("Run(%q) is allowed", name)
		}
		for _, write := range []func(*RunFile) error{w.WriteRun, w.CreateRun} {
			if err := write(testRun(name, Queued, time.Now())); err == nil {
				t.Errorf("writing run %q is allowed", name)
			}
		}
	}
	if diff := cmp.Diff(before, tree(t, w.Dir())); diff != "" {
		t.Errorf("something was created:\n%s", diff)
	}
}

// tree is everything below a directory: paths, sizes and times of change.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprint(path, info.Size(), info.Mode(), info.ModTime().UnixNano()))
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// What a value of its type would leave out must still be written: the first format needs
// "files" and "current" to be there.
func TestMonitorRecord(t *testing.T) {
	tests := []struct {
		name string
		rec  MonitorRecord
		want string
	}{
		{"no files left", MonitorRecord{Files: map[string]string{}}, `"files": {}`},
		{"empty body", MonitorRecord{Current: jsontext.Value(`""`), Hash: "x"}, `"current": ""`},
		{"null body", MonitorRecord{Current: jsontext.Value(`null`), Hash: "x"}, `"current": null`},
		{"empty list", MonitorRecord{Current: jsontext.Value(`[]`), Hash: "x"}, `"current": []`},
		{"launch without input", MonitorRecord{Pending: &PendingLaunch{Workflow: "w"}}, `"input": null`},
		{"exact numbers", MonitorRecord{Current: jsontext.Value(`9007199254740993.0`)}, `"current": 9007199254740993.0`},
		{"escapes as they came", MonitorRecord{Current: jsontext.Value(`"\u003c\ud800"`)}, `"current": "\u003c\ud800"`},
		{"empty selection", MonitorRecord{Selection: jsontext.Value(`""`), Filter: "css h1"}, `"selection": ""`},
		{"validators", MonitorRecord{Validators: Validators{URL: "http://a/b", ETag: `W/"1"`}}, `"etag": "W/\"1\""`},
		{"unknown fields", MonitorRecord{Pending: &PendingLaunch{Unknown: jsontext.Value(`{"n":1}`)}, Unknown: jsontext.Value(`{"m":2}`)}, `"n": 1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			noError(t, w.WriteMonitor("m", &tt.rec))
			text, err := os.ReadFile(w.path("monitors/m.json"))
			noError(t, err)
			if !strings.Contains(string(text), tt.want) {
				t.Errorf("no %s in %s", tt.want, text)
			}
			back, err := w.Monitor("m")
			noError(t, err)
			noError(t, w.WriteMonitor("m", back))
			again, err := os.ReadFile(w.path("monitors/m.json"))
			noError(t, err)
			if diff := cmp.Diff(string(text), string(again)); diff != "" {
				t.Errorf("a rewrite changed it:\n%s", diff)
			}
		})
	}
}

func TestSince(t *testing.T) {
	w := newWorkspace(t)
	got, err := w.Since()
	noError(t, err)
	if got == nil || len(got) != 0 {
		t.Fatalf("missing: %v", got)
	}
	want := map[string]Since{"a": {Cadence: "every 1h", At: Stamp{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}}
	noError(t, w.WriteSince(want))
	if got, err = w.Since(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	path := w.path("since.json")
	noError(t, os.WriteFile(path, []byte(`{"version":1,"later":[1],"keys":{"a":{"cadence":"x","since":null,"more":2}}}`), 0o600))
	if got, err = w.Since(); err != nil {
		t.Fatal(err)
	}
	noError(t, w.WriteSince(got))
	text, _ := os.ReadFile(path)
	for _, part := range []string{`"later"`, `"more": 2`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is lost in %s", part, text)
		}
	}
	for _, bad := range []string{`{"version":2}`, `{"keys":[]}`, `{`} {
		noError(t, os.WriteFile(path, []byte(bad), 0o600))
		if _, err := w.Since(); err == nil {
			t.Errorf("%s was read", bad)
		}
		if bad != `{"keys":[]}` {
			if err := w.WriteSince(want); err == nil {
				t.Errorf("%s was overwritten", bad)
			}
		}
	}
}

func TestHeartbeat(t *testing.T) {
	w := newWorkspace(t)
	if h, err := w.Heartbeat(); h != nil || err != nil {
		t.Fatalf("missing: %v, %v", h, err)
	}
	noError(t, w.RemoveHeartbeat())
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noError(t, w.WriteHeartbeat(nil, started))
	h, err := w.Heartbeat()
	noError(t, err)
	if h.Owner() != Self() || !h.StartedAt.Equal(started) || h.Version != 1 {
		t.Errorf("got %+v", h)
	}
	noError(t, w.RemoveHeartbeat())
	if h, err := w.Heartbeat(); h != nil || err != nil {
		t.Errorf("after removing: %v, %v", h, err)
	}
	// Another process took over: it is not ours to remove.
	other := fmt.Sprintf(`{"pid":%d,"startedAt":null,"config":null,"version":1,"bootId":"another"}`, os.Getpid())
	noError(t, os.WriteFile(w.path("heartbeat.json"), []byte(other), 0o600))
	noError(t, w.RemoveHeartbeat())
	if h, err := w.Heartbeat(); h == nil || err != nil {
		t.Errorf("another's heartbeat was removed: %v", err)
	}
}

func TestDirectoriesComeBack(t *testing.T) {
	w := newWorkspace(t)
	for _, write := range []func() error{
		func() error { return w.WriteKey("k", &KeyRecord{}) },
		func() error { return w.WriteKeyLazily("k", &KeyRecord{}) },
		func() error { return w.CreateRun(testRun(NewRunID(time.Now()), Queued, time.Now())) },
		func() error { return w.AppendSlot("k", SlotEntry{Outcome: SlotRan}, true) },
		func() error { return w.WriteHealthLazily("k", &Health{}) },
		func() error { return w.WriteCache("k", []byte("x")) },
	} {
		noError(t, os.RemoveAll(w.Dir()), write())
	}
}

func TestLedger(t *testing.T) {
	w := newWorkspace(t)
	if got, err := w.Slots("k", 5); got != nil || err != nil {
		t.Fatalf("missing: %v, %v", got, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var all []SlotEntry
	for i := range 500 {
		e := SlotEntry{
			Slot: Stamp{at.Add(time.Duration(i) * time.Minute)}, At: Stamp{at},
			Outcome: SlotSkipped, Reason: strings.Repeat("é", i%300), Holder: "pid 12",
		}
		all = append(all, e)
		noError(t, w.AppendSlot("k", e, i == 0))
	}
	for _, n := range []int{0, -1, 1, 2, 7, 499, 500, 600} {
		want := all
		if n > 0 {
			want = all[max(0, len(all)-n):]
		}
		got, err := w.Slots("k", n)
		noError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("newest %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestLedgerDamage(t *testing.T) {
	const (
		one = `{"slot":"2026-01-01T00:00:00.000Z","at":null,"outcome":"ran","run":"rn-1"}`
		two = `{"slot":"2026-01-02T00:00:00.000Z","at":null,"outcome":"ran","run":"rn-2"}`
	)
	tests := []struct {
		name, text string
		want       []string // runs, then the appended rn-3
	}{
		{"empty", "", nil},
		{"whole", one + "\n" + two + "\n", []string{"rn-1", "rn-2"}},
		{"torn", one + "\n" + two[:20], []string{"rn-1"}},
		{"only the newline is missing", one + "\n" + two, []string{"rn-1", "rn-2"}},
		{"torn from the start", two[:20], nil},
		{"merged", one + two + "\n" + two + "\n", []string{"rn-2"}},
		{"garbage between", one + "\n\x00\xff\n\nnull\n[]\n{}\n" + two + "\n", []string{"rn-1", "rn-2"}},
		{"zeros at the end", one + "\n" + strings.Repeat("\x00", 40000), []string{"rn-1"}},
		{"a line without end", one + "\n" + strings.Repeat("x", 3*maxLine) + "\n" + two + "\n", []string{"rn-1", "rn-2"}},
		{"nothing but one line", strings.Repeat("x", 2*maxLine), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			noError(t, os.WriteFile(w.path("slots/k.jsonl"), []byte(tt.text), 0o600))
			for _, want := range [][]string{tt.want, append(slices.Clone(tt.want), "rn-3")} {
				entries, err := w.Slots("k", 0)
				noError(t, err)
				var got []string
				for _, e := range entries {
					got = append(got, e.Run)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
				noError(t, w.AppendSlot("k", SlotEntry{Slot: Stamp{time.Now()}, Outcome: SlotRan, Run: "rn-3"}, true))
			}
		})
	}
}

func TestLedgerConcurrent(t *testing.T) {
	w := newWorkspace(t)
	var wg sync.WaitGroup
	const writers, each = 8, 50
	for range writers {
		wg.Go(func() {
			for i := range each {
				e := SlotEntry{Slot: Stamp{time.Now()}, Outcome: SlotMissed, Count: i}
				if err := w.AppendSlot("k", e, i%10 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := w.Slots("k", 0)
	noError(t, err)
	if len(got) != writers*each {
		t.Errorf("%d entries, want %d", len(got), writers*each)
	}
}

// The name of a ledger must be durable with the first line that has to be, even
// where an earlier line that had not to be created it.
func TestLedgerNameIsDurable(t *testing.T) {
	w := newWorkspace(t)
	files := &faultyFiles{}
	w.fs = files
	steps := []struct {
		key  string
		sync bool
		want int // directory fsyncs
	}{
		{"a", false, 0}, {"a", true, 1}, {"a", true, 0}, {"b", true, 1}, {"c", false, 0}, {"b", true, 1}, {"c", true, 0},
	}
	for i, s := range steps {
		files.calls = nil
		noError(t, w.AppendSlot(s.key, SlotEntry{Slot: Stamp{time.Now()}, Outcome: SlotRan}, s.sync))
		got := 0
		for _, c := range files.calls {
			if c == "syncdir slots" {
				got++
			}
		}
		if got != s.want {
			t.Errorf("step %d: %d fsyncs, want %d", i, got, s.want)
		}
	}
}
