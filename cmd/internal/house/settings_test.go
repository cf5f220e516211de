package house

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"marbles/cmd/internal/settings"
	"marbles/packaging"
)

var (
	settingsKey = regexp.MustCompile(`(?m)^#?([a-z_]+):`)
	offered     = regexp.MustCompile(`(?m)^#([a-z_]+: )`) // a value behind #
)

func loadSettings(t *testing.T, text []byte) *settings.Settings {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "marbles.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("marbles", pflag.ContinueOnError)
	settings.AddFlags(flags)
	if err := flags.Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Load(settings.Options{Flags: flags, Home: dir, Cwd: dir, Euid: os.Geteuid()})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// TestPackagedSettings: the packaged settings file loads as it is, explains every key, and what stands behind # is the
// default.
func TestPackagedSettings(t *testing.T) {
	text := packaging.Settings()
	if got, want := loadSettings(t, text).Sources, []string{"/etc/marbles/jobs"}; !cmp.Equal(got, want) {
		t.Errorf("sources are %q, want %q", got, want)
	}

	got := loadSettings(t, offered.ReplaceAll(text, []byte("$1")))
	want := loadSettings(t, nil)
	// These differ between a machine's service and a person.
	places := cmpopts.IgnoreFields(settings.Settings{}, "File", "Sources", "State", "Artifacts")
	if diff := cmp.Diff(want, got, places); diff != "" {
		t.Errorf("what is behind # is not the default (-default +file):\n%s", diff)
	}
	if got.State != "/var/lib/marbles" || got.Artifacts != "/var/lib/marbles/artifacts" {
		t.Errorf("state is %s and artifacts %s: not what the unit's StateDirectory= makes them", got.State, got.Artifacts)
	}

	explained := map[string]bool{}
	for _, m := range settingsKey.FindAllSubmatch(text, -1) {
		explained[string(m[1])] = true
	}
	documented := regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(settings.Document(), -1)
	if len(documented) == 0 {
		t.Fatal("the settings' reference lists no keys")
	}
	for _, m := range documented {
		if !explained[m[1]] {
			t.Errorf("the packaged settings file does not explain %s", m[1])
		}
	}
}
