package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace runs the test again as the root of a user namespace, whose limits and mounts are its own. It is true there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "LIVE_TEST_NAMESPACE"
	if os.Getenv(mark) != "" {
		return true
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), unshare, "-Urm", "true").CombinedOutput(); err != nil {
		t.Skipf("no user namespaces here: %v\n%s", err, out)
	}
	again := exec.CommandContext(t.Context(), unshare, "-Urm", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	again.Env = append(os.Environ(), mark+"=1")
	out, err := again.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	return false
}

// allow sets a limit of the namespace.
func allow(t *testing.T, limit string, n int) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/user/"+limit, fmt.Append(nil, n), 0o644); err != nil {
		t.Skip(err)
	}
}

func (l *lines) eventually(t *testing.T, parts ...string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := l.all()
		if len(got) == len(parts) {
			for i, part := range parts {
				if !strings.Contains(got[i], part) {
					t.Errorf("line %d is %q, want it to say %q", i, got[i], part)
				}
			}
			return
		}
		if len(got) > len(parts) || time.Now().After(end) {
			t.Fatalf("logged %q, want %d lines", got, len(parts))
		}
	}
}

func TestSystemsWatchLimit(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	root := t.TempDir()
	for i := range 20 {
		put(t, root, fmt.Sprintf("d%02d/file", i))
	}
	allow(t, "max_inotify_watches", 10)
	log := &lines{}
	h := quick(log)
	h.pace.renew, h.pace.cost = 100*time.Millisecond, 0
	l := listen(t, h, everything(root))
	log.eventually(t, "limit=fs.inotify.max_user_watches")
	l.quiet()
	put(t, root, "top")
	l.expect("what is watched")
	allow(t, "max_inotify_watches", 1000)
	log.eventually(t, "WARN", "INFO")
	l.expect("what was not watched before")
	l.quiet()
	for i := range 20 {
		put(t, root, fmt.Sprintf("d%02d/file", i))
		l.expect("a file")
		l.quiet()
	}
}

func TestSystemsInstanceLimit(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	root := t.TempDir()
	allow(t, "max_inotify_instances", 0)
	log := &lines{}
	h := quick(log)
	h.pace.renew = 100 * time.Millisecond
	l := listen(t, h, everything(root))
	log.eventually(t, "limit=fs.inotify.max_user_instances")
	put(t, root, "file")
	l.none("what is not watched")
	allow(t, "max_inotify_instances", 10)
	log.eventually(t, "WARN", "INFO")
	l.quiet()
	put(t, root, "file")
	l.expect("a file")
}

func TestSystemsUnmount(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	root := t.TempDir()
	at := filepath.Join(root, "sub/mnt")
	must(t, os.MkdirAll(at, 0o755))
	mount := func() {
		t.Helper()
		if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
			t.Skip(err)
		}
	}
	mount()
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	put(t, at, "deep/file")
	log := &lines{}
	h := quick(log)
	h.pace.check, h.pace.renew = 50*time.Millisecond, 500*time.Millisecond
	l := listen(t, h, everything(root))
	l.quiet()
	put(t, at, "deep/file")
	l.expect("a file in the mount")
	l.quiet()
	must(t, unix.Unmount(at, 0))
	l.expect("the unmount")
	log.eventually(t, "WARN directory="+at)
	l.quiet()
	put(t, at, "below")
	l.expect("the directory below the mount")
	l.quiet()
	log.eventually(t, "WARN", "INFO after=lost")
	mount()
	put(t, at, "deep/file")
	l.expect("another mount, at the next round")
	l.quiet()
	put(t, at, "deep/file")
	l.expect("a file in it")
}

func TestDirectoryWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	root := t.TempDir()
	put(t, root, "secret/file")
	secret := filepath.Join(root, "secret")
	must(t, os.Chmod(secret, 0))
	t.Cleanup(func() { _ = os.Chmod(secret, 0o755) })
	log := &lines{}
	h := quick(log)
	h.pace.renew = time.Second
	l := listen(t, h, everything(root))
	log.eventually(t, "WARN source=** directory="+secret)
	l.quiet()
	must(t, os.Chmod(secret, 0o755))
	l.expect("a directory that may be read now")
	l.quiet()
	put(t, root, "secret/file")
	l.expect("a file in it")
	log.eventually(t, "WARN", "INFO")
}
