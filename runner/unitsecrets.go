package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"marbles/state"
)

// secretNames are the names of the step's secrets.
func (s *step) secretNames() []string {
	return append(secretNames(s.r.launch.Workflow.Secrets), secretNames(s.Secrets)...)
}

// private is where a file of a unit lies that has secrets: in memory, where there is a place that outlives this process, else
// beside its others.
func (s *step) private(ctx context.Context, u *unit, name string) string {
	ctx, cancel := context.WithTimeout(ctx, askUnits)
	defer cancel()
	if s.r.w.o.Units.Keeps(ctx) {
		return s.r.w.privatePaths(u.UnitRef, name)[0]
	}
	return u.file(name)
}

// privatePaths are the places where a unit's file may lie that has secrets.
func (w *Worker) privatePaths(u state.UnitRef, name string) [2]string {
	return [2]string{filepath.Join(w.o.TempDir, filepath.Base(u.Dir)+"."+name), filepath.Join(u.Dir, name)}
}

// environmentFile is the unit's environment, until it has been read.
const environmentFile = "environment"

// forget removes a private file of a unit.
func (w *Worker) forget(u state.UnitRef, name string) {
	for _, path := range w.privatePaths(u, name) {
		_ = os.Remove(path)
	}
}

// secretsFile is what a unit's secrets were when it was started: who takes it over masks these, whatever they are by then.
const secretsFile = "secrets"

// keepSecrets writes down which values the unit's output must not show.
func (s *step) keepSecrets(path string, env []string) error {
	values := [][]byte{}
	for _, name := range s.secretNames() {
		if value, ok := lookupEnv(env, name); ok {
			values = append(values, []byte(value))
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return putNew(path, text)
}

// recall makes the secrets of a unit known to the run. Where that cannot be, the unit's output is withheld.
func (s *step) recall(u *unit) {
	why := errors.New("they are not on record")
	for _, path := range s.r.w.privatePaths(u.UnitRef, secretsFile) {
		text, err := readResult(path)
		if err == nil && text == nil {
			continue
		}
		var values [][]byte
		if err == nil {
			err = json.Unmarshal(text, &values)
		}
		if err == nil {
			for _, v := range values {
				s.r.secrets.add(string(v))
			}
			return
		}
		why = err
	}
	u.withheld = true
	s.r.journal.line(s.label(), "output of "+u.Unit+" is withheld, since it may show secrets that nobody knows any more")
	s.r.log().Error("output of a step's unit is withheld: its secrets are not known any more", "step", s.Name, "unit", u.Unit, "error", why)
}
