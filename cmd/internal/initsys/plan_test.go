package initsys

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"marbles/state"
)

// fake is a machine in a folder whose commands are written down, and fail where told to.
type fake struct {
	Host
	calls []string
	fail  string // a part of the command that fails
	down  bool   // nothing is enabled, active or loaded
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Host: Host{Root: t.TempDir(), Home: "/home/me", UID: 501}}
	f.Run = func(_ context.Context, argv []string) (string, error) {
		line := Line(argv)
		f.calls = append(f.calls, strings.ReplaceAll(line, f.Root, ""))
		if f.fail != "" && strings.Contains(line, f.fail) {
			return "no such luck", errors.New("exit status 5")
		}
		if f.down && (strings.Contains(line, " is-") || strings.Contains(line, " print ")) {
			return "", errors.New("exit status 3")
		}
		return "", nil
	}
	return f
}

func (f *fake) took() []string {
	calls := f.calls
	f.calls = nil
	return calls
}

// left are the files and folders below the root.
func (f *fake) left(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(f.Root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, f.Root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func ours(p Plan) Written {
	all := Written{}
	for _, f := range p.Files {
		all.Add(f.Path, f.Digest())
	}
	return all
}

func TestInstallOfTheMachine(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	p := f.TimerPlan(System, "backup", []byte("timer"), []byte("service"))
	kept := 0
	keep := func() error { kept++; return nil }
	if changed, err := p.Install(ctx, nil, keep); err != nil || !changed {
		t.Fatal(changed, err)
	}
	want(t, f.took(), "systemctl daemon-reload", "systemctl enable marbles-backup.timer", "systemctl restart marbles-backup.timer")
	want(t, f.left(t), "/etc/systemd/system/marbles-backup.service", "/etc/systemd/system/marbles-backup.timer")
	if info, err := os.Stat(p.Files[0].Path); err != nil || info.Mode().Perm() != 0o644 {
		t.Error(info.Mode(), err)
	}
	if changed, err := p.Install(ctx, nil, keep); err != nil || changed || kept != 2 {
		t.Error(changed, err, kept)
	}
	want(t, f.took(), "systemctl is-enabled --quiet marbles-backup.timer", "systemctl is-active --quiet marbles-backup.timer")
	// One that somebody has stopped is started again.
	f.down = true
	if changed, err := p.Install(ctx, nil, keep); err != nil || !changed {
		t.Error(changed, err)
	}
	f.took()
	r, err := p.Remove(ctx, ours(p), false, nil)
	if err != nil || len(r.Removed) != 2 {
		t.Error(r, err)
	}
	want(t, f.left(t))
}

// Whatever fails, everything is as it was before.
func TestInstallPutsBack(t *testing.T) {
	for _, fail := range []string{"daemon-reload", "enable", "restart", "keep"} {
		for _, was := range []string{"", "old"} {
			f, ctx := newFake(t), context.Background()
			if was != "" {
				if _, err := f.TimerPlan(User, "k", []byte(was), []byte(was)).Install(ctx, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			before := f.left(t)
			f.fail, f.calls = fail, nil
			p := f.TimerPlan(User, "k", []byte("new"), []byte("new"))
			_, err := p.Install(ctx, nil, func() error {
				if fail == "keep" {
					return errors.New("disk full")
				}
				return nil
			})
			if err == nil {
				t.Fatalf("%s: no error", fail)
			}
			if fail != "keep" && (!strings.Contains(err.Error(), "no such luck") || !strings.Contains(state.HintOf(err), "systemctl --user "+fail)) {
				t.Errorf("%v (%s) names no command", err, state.HintOf(err))
			}
			want(t, f.left(t), before...)
			for _, file := range p.Files {
				if data, _ := os.ReadFile(file.Path); string(data) != was {
					t.Errorf("%s fails: %s holds %q, want %q", fail, file.Path, data, was)
				}
			}
			if calls := f.took(); was == "" && calls[len(calls)-2] != "systemctl --user daemon-reload" {
				t.Errorf("%s fails: systemd is not told: %q", fail, calls)
			}
		}
	}
}

func TestRemoveLeavesWhatSomebodyChanged(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	p := f.TimerPlan(User, "k", []byte("timer"), []byte("service"))
	if _, err := p.Install(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Files[0].Path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if path, err := p.Conflict(ours(p)); err != nil || path != p.Files[0].Path {
		t.Error(path, err)
	}
	dropped := 0
	drop := func() error { dropped++; return nil }
	r, err := p.Remove(ctx, ours(p), false, drop)
	if err != nil || len(r.Kept) != 1 || len(r.Removed) != 1 || dropped > 0 {
		t.Error(r, err, dropped)
	}
	want(t, f.left(t), "/home/me/.config/systemd/user/marbles-k.timer")
	if r, err = p.Remove(ctx, ours(p), true, drop); err != nil || len(r.Removed) != 1 || len(r.Gone) != 1 || dropped != 1 {
		t.Error(r, err, dropped)
	}
	want(t, f.left(t))
}

// systemd forgets when a timer fired last only while it has its file.
func TestRemoveForgetsATimerThatIsGone(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	p := f.TimerPlan(System, "k", []byte("timer"), []byte("service"))
	if _, err := p.Install(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	stamp := f.path("/var/lib/systemd/timers/stamp-marbles-k.timer")
	if err := os.MkdirAll(filepath.Dir(stamp), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stamp, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.Files[0].Path); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Remove(ctx, ours(p), false, nil); err != nil {
		t.Fatal(err)
	}
	want(t, f.left(t))
}

// A unit that is masked is a link to /dev/null: it is not written through.
func TestMaskedUnitIsRefused(t *testing.T) {
	f := newFake(t)
	p := f.TimerPlan(System, "k", []byte("timer"), []byte("service"))
	if err := os.MkdirAll(filepath.Dir(p.Files[0].Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", p.Files[0].Path); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Install(context.Background(), nil, nil); err == nil || !strings.Contains(err.Error(), "masked") {
		t.Error(err)
	}
	want(t, f.left(t), "/etc/systemd/system/marbles-k.timer")
}

// launchd: out before in, in again where it is not rid of the old one yet, and put back where it refuses.
func TestJobs(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	p := f.JobPlan(User, Label("k"), []byte("<plist/>"), f.Logs())
	if _, err := p.Install(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	const path = "/home/me/Library/LaunchAgents/com.foundry.marbles.k.plist"
	want(t, f.took(), "launchctl bootout gui/501/com.foundry.marbles.k", "launchctl bootstrap gui/501 "+path)
	want(t, f.left(t), path)
	if changed, err := p.Install(ctx, nil, nil); err != nil || changed {
		t.Error(changed, err)
	}
	want(t, f.took(), "launchctl print gui/501/com.foundry.marbles.k")
	if r, err := p.Remove(ctx, ours(p), false, nil); err != nil || len(r.Removed) != 1 {
		t.Error(r, err)
	}
	want(t, f.took(), "launchctl bootout gui/501/com.foundry.marbles.k")
	p = f.JobPlan(System, "com.foundry.marbles", []byte("<plist/>"))
	p.Load[1].Again = 1
	f.fail = "bootstrap"
	if _, err := p.Install(ctx, nil, nil); err == nil || !strings.Contains(state.HintOf(err), "launchctl bootstrap system ") {
		t.Error(err, state.HintOf(err))
	}
	want(t, f.took(), "launchctl bootout system/com.foundry.marbles", "launchctl bootstrap system /Library/LaunchDaemons/com.foundry.marbles.plist",
		"launchctl bootstrap system /Library/LaunchDaemons/com.foundry.marbles.plist", "launchctl bootout system/com.foundry.marbles")
	want(t, f.left(t))
}

func TestSeal(t *testing.T) {
	for _, text := range []string{"[Unit]\n", "<?xml version=\"1.0\"?>\n<!DOCTYPE plist>\n<plist/>\n"} {
		sealed := Seal([]byte(text))
		if !intact(sealed) {
			t.Errorf("not intact:\n%s", sealed)
		}
		if intact([]byte(text)) || intact(append(sealed, ' ')) {
			t.Errorf("a changed file is intact:\n%s", text)
		}
	}
}

func TestPackagedUnitIsFound(t *testing.T) {
	f := newFake(t)
	path := f.path("/usr/lib/systemd/system/marbles.service")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f.Packaged(System, "marbles.service") != path || f.Packaged(User, "marbles.service") != "" {
		t.Error("a package's unit is not told from none")
	}
}

// What systemd calls the private /tmp of the longest name that passes just fits into a file's name.
func TestKeyTooLongForSystemd(t *testing.T) {
	longest := strings.Repeat("k", 183)
	if err := CheckKey(longest); err != nil {
		t.Error(err)
	}
	if tmp := "systemd-private-" + strings.Repeat("0", 32) + "-" + ServiceName(longest) + "-XXXXXX"; len(tmp) != 255 {
		t.Errorf("%d bytes", len(tmp))
	}
	for _, key := range []string{longest + "k", strings.Repeat("ü", 23)} {
		if err := CheckKey(key); err == nil || state.HintOf(err) == "" {
			t.Errorf("%q is taken (%v)", key, err)
		}
	}
}
