package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// A run file that contradicts itself is named as damaged, and costs only itself.
func TestStatusNamesContradictions(t *testing.T) {
	p := newPlace(t)
	ws := p.workspace(p.dir)
	file := func(id, status string) string {
		path := filepath.Join(ws.Dir(), "runs", id+".json")
		p.write(path, `{"version":2,"pid":1,"run":{"id":"`+id+`","step":"w","status":"`+status+`","timestamps":{"createdAt":1}}}`)
		return path
	}
	bad := file("rn-1", "suspended")
	file("rn-2", "complete")
	out, errs, code := p.main("status")
	if want := "cannot read " + bad + ": it contradicts itself: it is suspended, and nothing suspends it"; code != 0 || !strings.Contains(out+errs, want) {
		t.Errorf("exit %d: %s%s, want %s", code, out, errs, want)
	}
	out, _, _ = p.main("status", "--json")
	if !strings.Contains(out, "nothing suspends it") || !strings.Contains(out, `"id": "rn-2"`) {
		t.Errorf("status --json: %s", out)
	}
	if _, errs, code := p.main("show", "rn-1"); code == 0 || !strings.Contains(errs, "nothing suspends it") {
		t.Errorf("show: exit %d: %s", code, errs)
	}
}
