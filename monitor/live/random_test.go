package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// directories are those of a tree as they are, sorted.
func directories(root string) []string {
	var all []string
	everything(root).Dirs(context.Background(), "", func(d Dir) bool {
		all = append(all, filepath.Join(root, d.Path))
		return true
	})
	slices.Sort(all)
	return all
}

// Whatever happens to directories, soon each is watched, by the name it has now, and no other.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	root := t.TempDir()
	log := &lines{}
	h := quick(log)
	h.pace.renew = time.Hour // it must not be needed
	one, two := listen(t, h, everything(root)), listen(t, h, everything(filepath.Join(root, "a")))
	some := func() string { all := directories(root); return all[r.IntN(len(all))] }
	name := func() string { return string(rune('a' + r.IntN(4))) }
	for round := range 5 {
		for range 30 {
			switch at := some(); r.IntN(6) {
			case 0, 1, 2:
				_ = os.MkdirAll(filepath.Join(at, name(), name()), 0o755)
			case 3:
				if at != root {
					_ = os.Rename(at, filepath.Join(some(), name()))
				}
			case 4:
				if at != root && r.IntN(3) == 0 {
					_ = os.RemoveAll(at)
				}
			case 5:
				put(t, at, "file")
			}
			if r.IntN(5) == 0 {
				time.Sleep(time.Duration(r.IntN(15)) * time.Millisecond)
			}
		}
		one.quiet()
		two.quiet()
		want := directories(root)
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			got := h.notifier().WatchList()
			slices.Sort(got)
			diff := cmp.Diff(want, got)
			if diff == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("round %d: watched (-want +got):\n%s", round, diff)
			}
		}
		for range 3 {
			at := some()
			put(t, at, "file")
			one.expect(fmt.Sprintf("round %d: a file in %s", round, at))
			one.quiet()
		}
	}
	if got := log.all(); len(got) > 0 {
		t.Errorf("logged %q", got)
	}
}
