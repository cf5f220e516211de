package state

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// putRunText writes a run file as another program would: status, and further members of run and of the file.
func putRunText(t testing.TB, w *Workspace, id, status, run, file string) {
	t.Helper()
	text := fmt.Sprintf(`{"version":2,"pid":1,"run":{"id":%q,"step":"s","queueId":"q","status":%q%s,"timestamps":{"createdAt":1}},"queue":{"id":"q"}%s}`,
		id, status, run, file)
	noError(t, os.WriteFile(w.path(runsDir, id+recordExt), []byte(text), 0o600))
}

func TestContradictions(t *testing.T) {
	const (
		su1      = `{"id":"su-1","runId":"rn-1","status":"pending"}`
		resolved = `{"id":"su-1","runId":"rn-1","status":"resolved"}`
		link     = `,"links":{"jobId":"jb-1","sessionId":"s"}`
	)
	frames := func(payloads ...string) string {
		var list []string
		for i, p := range payloads {
			list = append(list, fmt.Sprintf(`{"runId":"rn-1","cursor":%d,"at":1,"payload":%s}`, i, p))
		}
		return `,"frames":[` + strings.Join(list, ",") + `]`
	}
	ends := func(event string) string { return `{"kind":"lifecycle","value":{"event":"` + event + `"}}` }
	tests := []struct {
		name, status, run, file string
		want                    string // "" is legal
	}{
		{"answered, not gone on yet", "suspended", "", `,"suspensions":[` + resolved + `]`, ""},
		{"went on beside an open question", "running", "", `,"suspensions":[` + su1 + `]`, ""},
		{"whole", "complete", link, `,"jobs":[{"id":"jb-1","status":"complete","links":{"sessionId":"s"}}],"suspensions":[` + resolved + `]` +
			frames(`{"kind":"log","value":1}`, `{"kind":"suspension","value":{"suspensionId":"su-1"}}`, ends("started"), ends("complete")), ""},
		{"settled child without its parent", "complete", `,"links":{"parentRunId":"rn-0"}`, "", ""},
		{"queue", "complete", `,"queueId":"x"`, "", `its queue "x" is missing`},
		{"job", "running", link, "", `its job "jb-1" is missing`},
		{"parent", "running", `,"links":{"parentRunId":"rn-0"}`, "", `its parent run "rn-0" is missing`},
		{"parent's name", "running", `,"links":{"parentRunId":"../x"}`, "", `its parent run "../x" is missing`},
		{"pending and settled", "failed", "", `,"suspensions":[` + su1 + `]`, `suspension "su-1" is pending, and the run is failed`},
		{"pending and queued", "queued", "", `,"suspensions":[` + su1 + `]`, `suspension "su-1" is pending, and the run is queued`},
		{"nothing suspends it", "suspended", "", "", "it is suspended, and nothing suspends it"},
		{"suspension twice", "suspended", "", `,"suspensions":[` + su1 + "," + su1 + `]`, `suspension "su-1" is there twice`},
		{"another's suspension", "suspended", "", `,"suspensions":[{"id":"su-1","runId":"rn-2","status":"pending"}]`, `suspension "su-1" is of run "rn-2"`},
		{"job twice", "complete", "", `,"jobs":[{"id":"jb-1"},{"id":"jb-1"}]`, `job "jb-1" is there twice`},
		{"ended job", "running", link, `,"jobs":[{"id":"jb-1","status":"failed"}]`, `job "jb-1" is failed, and its run is running`},
		{"links", "running", link, `,"jobs":[{"id":"jb-1","status":"active","links":{"sessionId":"other"}}]`, `it is of session "s", and its job "jb-1" is of "other"`},
		{"cursor", "complete", "", `,"frames":[{"runId":"rn-1","cursor":1,"payload":{}}]`, "frame 0 has the cursor 1"},
		{"another's frame", "complete", "", `,"frames":[{"runId":"rn-2","cursor":0,"payload":{}}]`, `frame 0 is of run "rn-2"`},
		{"frame's suspension", "complete", "", frames(`{"kind":"suspension","value":{"suspensionId":"su-9"}}`), `frame 0 names suspension "su-9", which is missing`},
		{"two ends", "complete", "", frames(ends("complete"), ends("complete")), "it ends twice: complete, and in frame 1 complete"},
		{"another end", "complete", "", frames(ends("failed")), "frame 0 says failed, and the run is complete"},
		{"an end too early", "running", "", frames(ends("failed")), "frame 0 says failed, and the run is running"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			if tt.name == "queue" {
				tt.file = ""
				noError(t, os.WriteFile(w.path(runsDir, "rn-1.json"),
					[]byte(`{"version":2,"run":{"id":"rn-1","status":"complete","queueId":"x"},"queue":{"id":"q"}}`), 0o600))
			} else {
				putRunText(t, w, "rn-1", tt.status, tt.run, tt.file)
			}
			putRunText(t, w, "rn-2", "running", "", "")
			f, err := w.Run("rn-1")
			list, lerr := w.Runs(RunQuery{})
			noError(t, lerr)
			if tt.want == "" {
				if err != nil || f == nil || len(list.Runs) != 2 {
					t.Errorf("%v, list %+v", err, list)
				}
				return
			}
			damaged := (*DamagedError)(nil)
			if !errors.As(err, &damaged) || !strings.HasSuffix(err.Error(), tt.want) || !strings.Contains(err.Error(), "rn-1.json") {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if len(list.Runs) != 1 || list.Runs[0].ID != "rn-2" || len(list.Damaged) != 1 || list.Damaged[0].Error() != err.Error() {
				t.Errorf("list %+v, want damaged: %v", list, err)
			}
			files, bad, uerr := w.Unsettled()
			noError(t, uerr)
			if len(files) != 1 || files[0].Run.ID != "rn-2" || len(bad) != 1 {
				t.Errorf("unsettled %v, damaged %v", files, bad)
			}
		})
	}
}

// Of runs that claim the same job, or suspension, the oldest loads, and so does every other.
func TestContradictionsAcross(t *testing.T) {
	w := newWorkspace(t)
	link := `,"links":{"jobId":"jb-1"}`
	job := `,"jobs":[{"id":"jb-1","status":"active"}]`
	putRunText(t, w, "rn-1", "running", link, job)
	putRunText(t, w, "rn-2", "running", link, job)
	putRunText(t, w, "rn-3", "suspended", "", `,"suspensions":[{"id":"su-1","runId":"rn-3","status":"pending"}]`)
	putRunText(t, w, "rn-4", "suspended", "", `,"suspensions":[{"id":"su-1","runId":"rn-4","status":"pending"}]`)
	putRunText(t, w, "rn-5", "running", `,"links":{"parentRunId":"rn-1"}`, "")
	putRunText(t, w, "rn-0", "failed", link, `,"jobs":[{"id":"jb-1","status":"failed"}]`) // an earlier attempt
	files, damaged, err := w.Unsettled()
	noError(t, err)
	var ids []string
	for _, f := range files {
		ids = append(ids, f.Run.ID)
	}
	if diff := cmp.Diff([]string{"rn-1", "rn-3", "rn-5"}, ids); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
	want := []string{"it contradicts run rn-1: both have job jb-1", "it contradicts run rn-3: both have suspension su-1"}
	for i, err := range damaged {
		if d := (*DamagedError)(nil); i >= len(want) || !errors.As(err, &d) || !strings.HasSuffix(err.Error(), want[i]) {
			t.Errorf("damaged: %v", err)
		}
	}
	_, unsettled, err := w.Overview(10)
	noError(t, err)
	if len(unsettled.Runs) != 3 || len(unsettled.Damaged) != len(want) {
		t.Errorf("overview %+v", unsettled)
	}
}

// Every documented member of version 2 survives a rewrite.
func TestRunFileKeepsAll(t *testing.T) {
	const text = `{
  "version": 2, "pid": 12, "bootId": "b", "startTicks": 3,
  "run": {"id":"rn-1","step":"release","queueId":"qu-1","status":"running","input":{"a":1},"output":[1],"error":{"name":"Error","message":"m","stack":"s"},
    "tags":{"a":"b"},"metadata":{"m":1},"extensions":{"triggerId":"k"},"snapshot":{"tree":[]},
    "timestamps":{"createdAt":1,"startedAt":2,"completedAt":3,"failedAt":4},"definition":{"name":"release","version":"2"},
    "links":{"invocationId":"i","jobId":"jb-1","parentRunId":"rn-0","principalId":"p","sessionId":"s","subjectId":"u"}},
  "frames": [{"runId":"rn-1","cursor":0,"at":1,"payload":{"kind":"progress","value":{"done":0.50}}}],
  "jobs": [{"id":"jb-1","definition":{"name":"d"},"input":null,"links":{"parentJobId":"jb-0","taskId":"t"},"status":"active","timestamps":{"createdAt":1}}],
  "queue": {"id":"qu-1","name":"q","status":"draining","createdAt":1,"extensions":{"e":1},"lastError":null},
  "suspensions": [{"id":"su-1","runId":"rn-1","kind":"marbles.feed.input","name":"ask","occurrence":0,"reason":"r","request":{"title":"T"},"resolution":{"answer":"a"},
    "revision":2,"status":"resolved","stepPath":["release","ask"],"timestamps":{"createdAt":1,"resolvedAt":2}}],
  "marbles": {"ledger":{"marbles:release.ask|ask|0":{"x":1}},"literals":{"release":{}},"session":{"id":"s"}}
}`
	w := newWorkspace(t)
	putRunText(t, w, "rn-0", "running", "", "")
	noError(t, os.WriteFile(w.path(runsDir, "rn-1.json"), []byte(text), 0o600))
	f, err := w.Run("rn-1")
	noError(t, err, w.putRun(w.writer(), w.path(runsDir, "rn-1.json"), f))
	data, err := os.ReadFile(w.path(runsDir, "rn-1.json"))
	noError(t, err)
	var before, after map[string]any
	noError(t, decode([]byte(text), &before), decode(data, &after))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
