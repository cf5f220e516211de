package monitor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// Random operations on a tree, and looks that may or may not be committed, against a
// model that reads everything: no event is missing, none is invented, and nothing that
// cannot be seen is removed. Longer: go test -run AgreeWithAModel -rapid.checks=20000.
func TestLooksAgreeWithAModel(t *testing.T) {
	if os.Geteuid() == 0 && asAnother(t) {
		return
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, rt)
		defer m.end()
		actions := m.actions()
		for name, action := range actions {
			actions[name] = func(rt *rapid.T) {
				action(rt)
				if rapid.IntRange(0, 2).Draw(rt, "then look") == 0 {
					m.look(rt)
				}
			}
		}
		rt.Repeat(actions)
	})
}

// asAnother runs this test again as a user who may not read everything, and reports
// whether it could.
func asAnother(t *testing.T) bool {
	dir, err := os.MkdirTemp("", "marbles-model-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o700))
	const nobody = 65534
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		return false
	}
	self, err := os.Executable() // its own directory is root's alone
	must(t, err)
	in, err := os.Open(self)
	must(t, err)
	defer in.Close()
	copied := filepath.Join(dir, "test")
	out, err := os.OpenFile(copied, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-rapid.nofailfile"}
	for _, arg := range os.Args[1:] {
		if strings.HasPrefix(arg, "-rapid.") || strings.HasPrefix(arg, "-test.timeout=") || strings.HasPrefix(arg, "-test.short=") {
			args = append(args, arg)
		}
	}
	c := exec.CommandContext(t.Context(), copied, args...)
	c.Dir = tmp
	c.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	text, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Logf("as root, so nothing is unreadable: %v", err)
		return false
	}
	if err != nil || !strings.Contains(string(text), "--- PASS: "+t.Name()) {
		t.Errorf("as user %d: %v\n%s", nobody, err, text)
	}
	return true
}

// model is a workspace, and who watches it.
type model struct {
	t       *testing.T
	dir     string // the workspace
	away    string // where it is moved to
	outside string // a file that no monitor may show
	patient bool   // the clock is pushed on between looks, so that digests are trusted
	watched []*watched
}

func newModel(t *testing.T, rt *rapid.T) *model {
	parent, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	m := &model{
		t: t, dir: filepath.Join(parent, "w"), away: filepath.Join(parent, "away"), outside: filepath.Join(parent, "outside"),
		patient: rapid.IntRange(0, 2).Draw(rt, "patient") == 0,
	}
	must(t, os.Mkdir(m.dir, 0o755))
	must(t, os.WriteFile(m.outside, []byte("outside"), 0o644))
	m.watched = append(m.watched, m.watch(rt, nil))
	if rapid.IntRange(0, 2).Draw(rt, "two") == 0 {
		shared := NewShared()
		m.watched = []*watched{m.watch(rt, shared), m.watch(rt, shared)}
	}
	return m
}

func (m *model) end() {
	m.readable()
	os.RemoveAll(filepath.Dir(m.dir))
}

// readable makes everything readable again, however deep.
func (m *model) readable() {
	filepath.WalkDir(filepath.Dir(m.dir), func(path string, e fs.DirEntry, err error) error {
		switch {
		case e == nil || e.Type()&fs.ModeSymlink != 0:
		case e.IsDir() && err == nil: // before it is listed
			if info, err := e.Info(); err == nil && info.Mode().Perm() != 0o755 {
				os.Chmod(path, 0o755)
			}
		case !e.IsDir():
			if info, err := e.Info(); err == nil && info.Mode().Perm() == 0 {
				os.Chmod(path, 0o644)
			}
		}
		return nil
	})
}

// tick waits until the file system's clock has moved on, so that what is written next
// has another ctime.
func (m *model) tick() {
	ctime := func() time.Time {
		f, err := os.CreateTemp(filepath.Dir(m.dir), "tick")
		must(m.t, err)
		defer os.Remove(f.Name())
		defer f.Close()
		var st unix.Stat_t
		must(m.t, unix.Fstat(int(f.Fd()), &st))
		return time.Unix(st.Ctim.Unix())
	}
	for start := ctime(); !ctime().After(start); time.Sleep(time.Millisecond) {
	}
}

var (
	modelNames    = []string{"a", "b.md", ".c", "d", "e.md", "node_modules", "-f", "\xffg.md", "h\n"}
	modelContents = []string{"", "1", "2", "11", "22", strings.Repeat("3", 70_000), strings.Repeat("4", 70_000)}
	modelTimes    = []time.Time{time.Unix(0, 0), time.Unix(-1, 5), time.Unix(1_000_000_000, 1), time.Now().Add(time.Hour), time.Now().Add(-time.Hour)}
	modelRules    = []string{"a\n", "/a\n", "*.md\n!b.md\n", "d/\n", "*\n!*/\n!*.md\n", "a/b.md\n", "**/d/*\n", "# none\n", "", "/*\n!/a\n", "!d\n!*.md\n", ".gitignore\n"}
)

func (m *model) path(rt *rapid.T, label string) string {
	names := rapid.SampledFrom(modelNames[:4])
	if rapid.IntRange(0, 3).Draw(rt, "rare") == 0 {
		names = rapid.SampledFrom(modelNames)
	}
	parts := rapid.SliceOfN(names, 1, 3).Draw(rt, label)
	return filepath.Join(m.dir, filepath.Join(parts...))
}

func (m *model) content(rt *rapid.T) []byte {
	return []byte(rapid.SampledFrom(modelContents).Draw(rt, "content"))
}

// actions do what they can and ignore errors: what came of it is read by the model.
func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"write": func(rt *rapid.T) {
			p := m.path(rt, "path")
			if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
				write(p, m.content(rt))
			}
		},
		"write in place": func(rt *rapid.T) { m.inPlace(rt, os.O_WRONLY) },
		"append":         func(rt *rapid.T) { m.inPlace(rt, os.O_WRONLY|os.O_APPEND) },
		"rename over": func(rt *rapid.T) {
			p := m.path(rt, "path")
			if write(p+".new", m.content(rt)) == nil {
				if old, err := os.Stat(p); err == nil && rapid.Bool().Draw(rt, "keep mtime") {
					os.Chtimes(p+".new", time.Time{}, old.ModTime())
				}
				os.Rename(p+".new", p)
			}
		},
		"swap": func(rt *rapid.T) {
			a, b := m.path(rt, "one"), m.path(rt, "other")
			if os.Rename(a, a+".tmp") == nil {
				os.Rename(b, a)
				os.Rename(a+".tmp", b)
			}
		},
		"remove":    func(rt *rapid.T) { remove(m.path(rt, "path")) },
		"rename":    func(rt *rapid.T) { os.Rename(m.path(rt, "from"), m.path(rt, "to")) },
		"hard link": func(rt *rapid.T) { os.Link(m.target(rt), m.path(rt, "name")) },
		"link":      m.symlink,
		"chmod":     m.chmod,
		"touch": func(rt *rapid.T) {
			os.Chtimes(m.path(rt, "path"), time.Time{}, rapid.SampledFrom(modelTimes).Draw(rt, "time"))
		},
		"readable":    func(*rapid.T) { m.readable() },
		"file or not": m.replace,
		"gitignore": func(rt *rapid.T) {
			p := filepath.Join(rapid.SampledFrom([]string{m.dir, m.path(rt, "path")}).Draw(rt, "dir"), ".gitignore")
			write(p, []byte(rapid.SampledFrom(modelRules).Draw(rt, "rules")))
		},
		"no gitignore": func(rt *rapid.T) {
			os.Remove(filepath.Join(rapid.SampledFrom([]string{m.dir, m.path(rt, "path")}).Draw(rt, "dir"), ".gitignore"))
		},
		"workspace": func(rt *rapid.T) {
			if os.Rename(m.away, m.dir) != nil && rapid.IntRange(0, 3).Draw(rt, "really") == 0 {
				os.Rename(m.dir, m.away)
			}
		},
		"look": m.look,
		"commit": func(rt *rapid.T) {
			for _, w := range m.watched {
				w.succeed(rt)
			}
		},
		"restart": func(rt *rapid.T) {
			for _, w := range m.watched {
				w.restarted(rt)
			}
		},
	}
}

// write is os.WriteFile that does not wait for the reader of a pipe.
func write(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// remove is os.RemoveAll that does not wait for the writer of a pipe in place of a directory.
func remove(path string) {
	if info, err := os.Stat(filepath.Dir(path)); err == nil && info.IsDir() {
		os.RemoveAll(path)
	}
}

func (m *model) inPlace(rt *rapid.T, flags int) {
	p := m.path(rt, "path")
	old, err := os.Stat(p)
	if err != nil || !old.Mode().IsRegular() {
		return
	}
	f, err := os.OpenFile(p, flags, 0)
	if err != nil {
		return
	}
	f.Write(m.content(rt))
	f.Close()
	if rapid.Bool().Draw(rt, "keep mtime") {
		os.Chtimes(p, time.Time{}, old.ModTime())
	}
}

func (m *model) target(rt *rapid.T) string {
	return rapid.SampledFrom([]string{m.path(rt, "target"), m.outside}).Draw(rt, "which")
}

func (m *model) symlink(rt *rapid.T) {
	p := m.path(rt, "name")
	to := rapid.SampledFrom([]string{m.target(rt), ".", "..", "b.md", "../a", "../b.md", "a/b.md", filepath.Base(p), "../../outside", "/nowhere/x"}).Draw(rt, "to")
	if rapid.Bool().Draw(rt, "over") {
		os.Remove(p)
	}
	os.Symlink(to, p)
}

func (m *model) chmod(rt *rapid.T) {
	p := m.path(rt, "path")
	info, err := os.Lstat(p)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return
	}
	mode := fs.FileMode(0o600)
	if info.IsDir() {
		mode = 0o700
	}
	if os.Geteuid() != 0 && rapid.Bool().Draw(rt, "unreadable") {
		mode = 0
	}
	if info, err := os.Lstat(filepath.Join(p, ".gitignore")); err == nil && info.Mode().IsRegular() && rapid.Bool().Draw(rt, "its rules") {
		p = filepath.Join(p, ".gitignore")
	}
	os.Chmod(p, mode)
}

// replace puts a directory in the place of a file, or something else in the place of either.
func (m *model) replace(rt *rapid.T) {
	p := m.path(rt, "path")
	remove(p)
	switch rapid.IntRange(0, 3).Draw(rt, "by") {
	case 0:
		write(p, m.content(rt))
	case 1:
		os.Mkdir(p, 0o755)
	case 2:
		if os.Mkdir(p, 0o755) == nil {
			write(filepath.Join(p, "b.md"), m.content(rt))
		}
	case 3:
		unix.Mkfifo(p, 0o644)
	}
}

// look has all look at once, and then compares.
func (m *model) look(rt *rapid.T) {
	if m.patient {
		m.tick()
		defer m.tick()
	}
	var looks sync.WaitGroup
	for _, w := range m.watched {
		how := LookOptions{
			Fresh:         rapid.IntRange(0, 3).Draw(rt, "fresh") == 0,
			Unconditional: rapid.IntRange(0, 7).Draw(rt, "unconditional") == 0,
		}
		looks.Go(func() { w.pending, w.err = w.source.Look(m.t.Context(), w.committed(), how) })
	}
	looks.Wait()
	for _, w := range m.watched {
		w.judge(rt)
		if rapid.Bool().Draw(rt, "commit") {
			w.succeed(rt)
		}
	}
}
