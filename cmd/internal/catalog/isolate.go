package catalog

import (
	"strings"

	"github.com/go-json-experiment/json"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/runner/transient"
)

// isolations are the values of `isolate`.
var isolations = []string{"unit"}

// isolate reads whether a step runs in a unit of the init system. The directives of `unit` may have been read before.
func (d *decoder) isolate(s *stepNode, n *strict.Node) {
	if _, ok := d.oneOf(n, isolations); ok && s.Isolate == nil {
		s.Isolate = new(runner.Isolate)
	}
}

// unit reads what the step's unit is like: systemd's directives by their names.
func (d *decoder) unit(s *stepNode, n *strict.Node) {
	if s.Isolate == nil {
		s.Isolate = new(runner.Isolate)
	}
	if !d.Map(n, "a mapping of systemd's directives, such as {MemoryMax: 2G, ProtectSystem: strict}") {
		return
	}
	for k, v := range d.Pairs(n) {
		text, ok := d.JSON(v)
		if !ok {
			continue
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			d.Errorf(v, "%v", err)
			continue
		}
		if _, err := transient.Check(k.Value, value); err != nil {
			at := v
			if strings.HasPrefix(err.Error(), "unknown") {
				at = k
			}
			d.Errorf(at, "%s", strings.TrimPrefix(err.Error(), k.Value+": "))
			continue
		}
		s.Isolate.Directives = append(s.Isolate.Directives, runner.Directive{Name: k.Value, Value: value})
	}
}

// isolateTogether reports what does not go with a unit.
func (d *decoder) isolateTogether(s *stepNode) {
	if k := s.given["unit"]; k != nil && s.given["isolate"] == nil {
		d.Errorf(k, "unit goes with isolate: unit")
	}
	k := s.given["isolate"]
	if k == nil {
		return
	}
	if s.Worktree != nil {
		d.Errorf(s.given["worktree"], "a worktree goes when the service stops, and a step with isolate: unit does not")
	}
	if s.Final != runner.NotFinal {
		d.Errorf(k, "a step that runs after all others ends with its run: isolate is for the others")
	}
}
