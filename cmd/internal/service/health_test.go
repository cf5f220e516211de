package service

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"marbles/monitor"
	"marbles/state"
)

// watching is a world with a monitor m of a page, whose handlers write lines: changes, down, up.
func watching(t *testing.T, url string, more ...string) *world {
	t.Helper()
	return newWorld(t, fmt.Sprintf(`monitors:
  - key: m
    watch: %s
    every: 1h
    do: '%s'
    on_down: '%s'
    on_up: '%s'
    %s
`, url, quoted(told("changes")), quoted(told("down")), quoted(told("up")), strings.Join(more, "\n    ")))
}

// quoted is a text within '…' in YAML.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "''") }

// One letter is one look: the body it finds, or for 4, 9 and 5 an error.
func TestWhatAnOutageTells(t *testing.T) {
	tests := []struct {
		name              string
		fail, recover     int
		looks             string
		changes, down, up int
		// After which look each was told, counted from 1.
		downAt, upAt int
	}{
		{name: "one 429", fail: 3, recover: 2, looks: "A9A", changes: 1},
		{name: "two of three", fail: 3, recover: 2, looks: "A55A", changes: 1},
		{name: "an outage", fail: 3, recover: 2, looks: "A55A555AA", changes: 1, down: 1, up: 1, downAt: 7, upAt: 9},
		{name: "an outage with a change in it", fail: 3, recover: 2, looks: "A555BB", changes: 2, down: 1, up: 1, downAt: 4, upAt: 6},
		{name: "steady 404", fail: 1, recover: 1, looks: "A" + strings.Repeat("4", 100), changes: 1, down: 1, downAt: 2},
		{name: "never seen", fail: 2, recover: 1, looks: "555", down: 1, downAt: 2},
		{name: "there and back", fail: 1, recover: 1, looks: "ABABB", changes: 4},
		{name: "recovery interrupted", fail: 1, recover: 2, looks: "A5A5A5AA", changes: 1, down: 1, up: 1, downAt: 2, upAt: 8},
		{name: "flapping", fail: 1, recover: 1, looks: "A5A5A", changes: 1, down: 2, up: 2, downAt: 2, upAt: 3},
		{name: "by default", looks: "A5A", changes: 1, down: 1, up: 1, downAt: 2, upAt: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t)
			var more []string
			if tt.fail > 0 {
				more = []string{fmt.Sprint("fail_after: ", tt.fail), fmt.Sprint("recover_after: ", tt.recover)}
			}
			w := watching(t, p.URL, more...)
			downAt, upAt := 0, 0
			for i, look := range tt.looks {
				switch look {
				case '4':
					p.set(404, "no")
				case '5':
					p.set(503, "no")
				case '9':
					p.set(429, "no")
				default:
					p.set(200, string(look))
				}
				if res := w.poll("m"); (res.Err != nil) != strings.ContainsRune("459", look) {
					t.Fatalf("look %d (%c): %v", i+1, look, res.Err)
				}
				if downAt == 0 && w.count("down") > 0 {
					downAt = i + 1
				}
				if upAt == 0 && w.count("up") > 0 {
					upAt = i + 1
				}
			}
			got := []int{w.count("changes"), w.count("down"), w.count("up"), downAt, upAt}
			if diff := cmp.Diff([]int{tt.changes, tt.down, tt.up, tt.downAt, tt.upAt}, got); diff != "" {
				t.Errorf("changes, downs, ups, first down, first up (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheNoticesSay(t *testing.T) {
	p := serve(t)
	w := watching(t, p.URL, "fail_after: 2")
	w.good("m")
	p.set(503, "")
	begin := time.Now().Truncate(time.Millisecond)
	w.poll("m")
	w.poll("m")
	w.poll("m")
	p.set(200, "v1")
	w.good("m")
	var down, up healthChange
	for name, into := range map[string]*healthChange{"down": &down, "up": &up} {
		if err := json.Unmarshal([]byte(w.read(name)), into); err != nil {
			t.Fatalf("%s: %v", w.read(name), err)
		}
	}
	if down.Kind != "health" || down.State != "down" || down.Failures != 2 || !strings.Contains(down.Error, "503") || down.Since.Before(begin) {
		t.Errorf("down: %+v", down)
	}
	if up.Kind != "health" || up.State != "up" || up.Failures != 3 || !up.Since.After(up.DownSince.Time) || up.DownSince.Before(down.Since.Time) {
		t.Errorf("up: %+v", up)
	}
	if h := w.health("m"); h.Failures != 0 || h.Down || h.Pending != "" || h.LastError != "" || !h.RetryAt.IsZero() {
		t.Errorf("health after it: %+v", h)
	}
}

// A notice is owed until its handler succeeded: over failures of the handler, a restart, and a crash before it is recorded.
func TestNoticesAreOwed(t *testing.T) {
	p := serve(t)
	w := newWorld(t, fmt.Sprintf(`monitors:
  - key: m
    watch: %s
    every: 1h
    do: 'true'
    on_down: '%s; test -e well'
    on_up: '%s; test -e well'
`, p.URL, quoted(told("down")), quoted(told("up"))))
	w.good("m")
	p.set(503, "")
	for range 3 {
		w.poll("m")
	}
	if got := w.count("down"); got != 3 {
		t.Fatalf("down is offered %d times in 3 looks", got)
	}
	w.restart()
	w.write("well", "")
	owed, err := os.ReadFile(filepath.Join(w.ws.Dir(), "health/m.json"))
	if err != nil {
		t.Fatal(err)
	}
	w.poll("m")
	w.poll("m")
	if got := w.count("down"); got != 4 {
		t.Errorf("down is told %d times, want a fourth and last time after the restart", got)
	}
	// The crash: the handler has succeeded, and the record is as before.
	if err := os.WriteFile(filepath.Join(w.ws.Dir(), "health/m.json"), owed, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.poll("m")
	w.poll("m")
	if got := w.count("down"); got != 5 {
		t.Errorf("down is told %d times, want once more after the crash", got)
	}

	w.remove("well")
	p.set(200, "v1")
	w.poll("m")
	if got, h := w.count("up"), w.health("m"); got != 1 || h.Pending != state.NoticeUp || h.Down {
		t.Fatalf("up is offered %d times, %+v", got, h)
	}
	w.write("well", "")
	w.good("m")
	w.good("m")
	if got := w.count("up"); got != 2 {
		t.Errorf("up is told %d times, want a second and last time", got)
	}
}

// What nobody heard need not be taken back.
func TestUnheardNoticesCancelOut(t *testing.T) {
	p := serve(t)
	w := newWorld(t, fmt.Sprintf(`monitors:
  - key: m
    watch: %s
    every: 1h
    do: 'true'
    on_down: 'echo >> down; test -e well'
    on_up: 'echo >> up; test -e well'
`, p.URL))
	w.good("m")
	p.set(503, "")
	w.poll("m")
	p.set(200, "v1")
	w.good("m")
	w.write("well", "")
	w.good("m")
	if down, up := w.count("down"), w.count("up"); down != 1 || up != 0 {
		t.Errorf("an outage that nobody heard of: %d downs, %d ups, want 1 and 0", down, up)
	}

	p.set(503, "")
	w.poll("m")
	w.remove("well")
	p.set(200, "v1")
	w.poll("m")
	p.set(503, "")
	w.poll("m")
	w.write("well", "")
	w.poll("m")
	if down, up := w.count("down"), w.count("up"); down != 2 || up != 1 {
		t.Errorf("a recovery that nobody heard of: %d downs, %d ups, want 2 and 1", down, up)
	}
	if h := w.health("m"); !h.Down || h.Pending != "" {
		t.Errorf("health: %+v", h)
	}
}

// A notice that cannot be told keeps no change from its handler.
func TestNoticeThatFailsHoldsNothingUp(t *testing.T) {
	p := serve(t)
	w := newWorld(t, fmt.Sprintf(`monitors:
  - key: m
    watch: %s
    every: 1h
    do: '%s'
    on_up: 'false'
`, p.URL, quoted(told("changes"))))
	w.good("m")
	p.set(503, "")
	w.poll("m")
	p.set(200, "v2")
	res := w.poll("m")
	if res.Err == nil || res.Outcome != state.SlotRan {
		t.Errorf("tick: %+v", res)
	}
	if got := w.count("changes"); got != 2 {
		t.Errorf("%d changes, want 2", got)
	}
	if w.poll("m"); w.count("changes") != 2 {
		t.Error("the change is handled again")
	}
}

func TestCertLine(t *testing.T) {
	now := at("2026-11-30T17:00:00Z")
	tests := []struct {
		expires string
		days    int
		want    string
	}{
		{"2026-12-10T08:00:00Z", 14, "certificate ends 2026-12-10, in 10 days"},
		{"2026-12-01T00:00:00Z", 14, "certificate ends 2026-12-01, in 1 day"},
		{"2026-11-30T23:00:00Z", 14, "certificate ends 2026-11-30, today"},
		{"2026-11-30T16:00:00Z", 14, "certificate ended 2026-11-30"},
		{"2026-12-14T17:00:00Z", 14, "certificate ends 2026-12-14, in 14 days"},
		{"2026-12-14T17:00:01Z", 14, ""},
		{"2026-12-10T08:00:00Z", 0, ""},
		{"2026-12-10T02:00:00+05:00", 14, "certificate ends 2026-12-09, in 9 days"},
	}
	for _, tt := range tests {
		if got := CertLine(at(tt.expires), now, tt.days); got != tt.want {
			t.Errorf("%s, %d days ahead: %q, want %q", tt.expires, tt.days, got, tt.want)
		}
	}
	if got := CertLine(time.Time{}, now, 14); got != "" {
		t.Errorf("no certificate: %q", got)
	}
}

// What a monitor does not see, and that its certificate ends, is kept, and said when that changes, not at each look.
func TestDegradedIsKeptAndSaidOnce(t *testing.T) {
	w := watching(t, "http://127.0.0.1:1/")
	m := w.monitor("m")
	m.CertDays = 14
	secret, both := []string{"t/secret: permission denied"}, []string{"t/secret: permission denied", "u: input/output error"}
	soon := time.Now().Add(10 * 24 * time.Hour)
	cert := CertLine(soon, time.Now(), 14)
	tests := []struct {
		name     string
		degraded []string
		cert     time.Time
		restart  bool
		lines    int // logged
		want     []string
	}{
		{name: "whole"},
		{name: "a part", degraded: secret, lines: 1, want: secret},
		{name: "still", degraded: secret, want: secret},
		{name: "still, after a restart", degraded: secret, restart: true, want: secret},
		{name: "less", degraded: both, lines: 1, want: both},
		{name: "whole again", lines: 1},
		{name: "still whole"},
		{name: "certificate", cert: soon, lines: 1, want: []string{cert}},
		{name: "certificate, after a restart", cert: soon, restart: true, want: []string{cert}},
		{name: "certificate, not asked again", want: []string{cert}},
		{name: "certificate and a part", cert: soon, degraded: secret, lines: 1, want: append(secret, cert)},
		{name: "renewed", cert: soon.AddDate(1, 0, 0), lines: 1},
	}
	for _, tt := range tests {
		if tt.restart {
			w.restart()
		}
		w.monitor("m").CertDays = 14
		before := strings.Count(w.log.String(), "\n")
		v := w.desk.view(w.target, w.monitor("m"), Firing{})
		w.desk.note(v, &monitor.Observation{Degraded: tt.degraded, CertExpires: tt.cert}, nil, false)
		if got := strings.Count(w.log.String(), "\n") - before; got != tt.lines {
			t.Errorf("%s: %d lines are logged, want %d:\n%s", tt.name, got, tt.lines, w.log)
		}
		h := w.health("m")
		if diff := cmp.Diff(tt.want, h.Degraded); diff != "" {
			t.Errorf("%s: degraded (-want +got):\n%s", tt.name, diff)
		}
		if h.DegradedSince.IsZero() != (len(tt.want) == 0) {
			t.Errorf("%s: since %v", tt.name, h.DegradedSince)
		}
	}
}

// stamps are the times of change of everything in a folder of the state.
func (w *world) stamps(dir string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(w.ws.Dir(), dir))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			w.t.Fatal(err)
		}
		all[e.Name()] = info.ModTime().String()
	}
	return all
}

// A source that is well and does not change keeps the disk quiet.
func TestIdleMonitorWritesNothing(t *testing.T) {
	p := serve(t)
	w := watching(t, p.URL)
	w.good("m")
	w.good("m")
	before := []map[string]string{w.stamps("health"), w.stamps("monitors"), w.stamps("cache"), w.stamps("schedules")}
	for range 20 {
		w.good("m")
	}
	after := []map[string]string{w.stamps("health"), w.stamps("monitors"), w.stamps("cache"), w.stamps("schedules")}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("looks that saw nothing wrote something:\n%s", diff)
	}
	if len(after[0]) != 0 {
		t.Errorf("a monitor that was never ill has a health: %v", after[0])
	}
	// A server that names its page anew each time is written down now and then.
	changed := 0
	for i := range 10 {
		p.head("ETag", fmt.Sprintf(`"%d"`, i))
		at := w.stamps("monitors")
		w.good("m")
		if !cmp.Equal(at, w.stamps("monitors")) {
			changed++
		}
	}
	if changed > 1 {
		t.Errorf("ten new ETags of the same page are written %d times", changed)
	}
	if got := w.count("changes"); got != 1 {
		t.Errorf("%d changes", got)
	}
}

func TestDamagedHealthCostsOnlyItself(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		aside      bool
	}{
		{"torn", `{"version":1,"fai`, true},
		{"a later version", `{"version":9}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t)
			w := watching(t, p.URL, "fail_after: 2")
			path := filepath.Join(w.ws.Dir(), "health/m.json")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			w.good("m")
			p.set(503, "")
			w.poll("m")
			w.poll("m")
			if got := w.count("down"); got != 1 {
				t.Errorf("down is told %d times", got)
			}
			if got := strings.Count(w.log.String(), "health of a monitor"); got != 1 {
				t.Errorf("%d lines about it:\n%s", got, w.log)
			}
			aside, _ := os.ReadFile(path + ".damaged")
			if string(aside) == tt.text != tt.aside {
				t.Errorf("set aside: %q", aside)
			}
			if text, _ := os.ReadFile(path); !tt.aside && string(text) != tt.text {
				t.Errorf("the file is now %s", text)
			}
		})
	}
}

// The end of a real server's certificate is kept, and noticed as many days ahead as the monitor says.
func TestCertificateOfAServer(t *testing.T) {
	p := &page{status: 200, body: "v1"}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(p.Close)
	ends := p.Certificate().NotAfter
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	days := int(time.Until(ends)/(24*time.Hour)) + 2
	for _, tt := range []struct {
		days int
		want string
	}{{days, "certificate ends " + ends.UTC().Format(time.DateOnly)}, {14, ""}} {
		w := newWorld(t, fmt.Sprintf("monitors:\n  - {key: m, watch: %q, every: 1h, do: 'true', ca: %q}\n", p.URL, file))
		w.monitor("m").CertDays = tt.days
		w.good("m")
		w.good("m")
		h := w.health("m")
		if !h.CertExpires.Equal(ends) {
			t.Errorf("it ends %v, want %v", h.CertExpires, ends)
		}
		if got := strings.Join(h.Degraded, "; "); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%d days ahead: degraded is %q, want %q", tt.days, got, tt.want)
		}
		if got := strings.Count(w.log.String(), "certificate of the source ends soon"); (got == 1) != (tt.want != "") {
			t.Errorf("%d days ahead: %d lines in the log", tt.days, got)
		}
	}
}
