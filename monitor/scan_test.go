package monitor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// lookTogether looks with all watchers at once, and commits.
func lookTogether(t *testing.T, ws []*watcher) []*Observation {
	t.Helper()
	observations, errs := make([]*Observation, len(ws)), make([]error, len(ws))
	var looks sync.WaitGroup
	for i, w := range ws {
		looks.Go(func() { observations[i], errs[i] = w.look() })
	}
	looks.Wait()
	for i, w := range ws {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		w.commit(observations[i])
	}
	return observations
}

func sharing(t *testing.T, dir string, globs ...string) (ws []*watcher, shared *Shared) {
	shared = NewShared()
	for _, glob := range globs {
		ws = append(ws, &watcher{t: t, source: mustFiles(t, dir, glob, FilesOptions{Shared: shared})})
	}
	return ws, shared
}

// everyOne checks that each was counted once.
func everyOne(t *testing.T, what string, got map[string]int, want int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != 1 {
			t.Errorf("%s %s %d times", what, name, got[name])
		}
	}
	if len(got) != want {
		t.Errorf("%s %d, want %d", what, len(got), want)
	}
}

// In a bubble the clock stands still while looks are on their way: they all begin together.
func TestMonitorsOfOneTreeShareTheirReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := range 300 {
			tree(t, dir, fmt.Sprintf("d%d/f%d.txt", i%10, i), fmt.Sprint(i))
		}
		tree(t, dir, "d0/.gitignore", "f10.txt\n")
		ws, shared := sharing(t, dir, "**", "**/*.txt", "d*/**", "**/f*", "*/*.txt")
		c := withCounts(ws...)
		c.offset += time.Until(time.Unix(0, nanos(ctimeOf(t, dir)))) // the bubble's clock is years back
		dirOf := ws[0].source.files.dir
		all := shared.join(dirOf, false) // so that none is late
		for i, o := range lookTogether(t, ws) {
			want := "299 added"
			if i == 0 || i == 2 {
				want = "300 added" // with the .gitignore
			}
			if o.Summary != want {
				t.Errorf("%v: got %s, want %s", ws[i].source, o.Summary, want)
			}
		}
		// The .gitignore is read once for its rules and once as a file.
		c.reads[".gitignore"]--
		everyOne(t, "read", c.reads, 300)
		everyOne(t, "listed", c.lists, 11)
		shared.leave(dirOf, all)
		if len(shared.batches) != 0 {
			t.Error("a batch is kept after its looks")
		}
		clear(c.lists)
		clear(c.reads)
		all = shared.join(dirOf, false)
		for _, o := range lookTogether(t, ws) {
			if o.Changed {
				t.Errorf("got %s", o.Summary)
			}
		}
		everyOne(t, "listed", c.lists, 11)
		c.expectReads(t, 0)

		shared.leave(dirOf, all)
		time.Sleep(time.Second)
		all = shared.join(dirOf, false)
		defer shared.leave(dirOf, all)
		clear(c.lists)
		tree(t, dir, "d3/f3.txt", "changed")
		for i, o := range lookTogether(t, ws) {
			if got := eventsOf(t, o); got != "~d3/f3.txt" {
				t.Errorf("%v: got %q", ws[i].source, got)
			}
		}
		everyOne(t, "listed", c.lists, 11)
		c.expectReads(t, 1)
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShared()
		a := s.join("w", false)
		time.Sleep(joinWithin)
		b := s.join("w", false)
		if a != b {
			t.Error("a look 50 ms later is not in the batch")
		}
		if s.join("other", false) == a {
			t.Error("another workspace is in the batch")
		}
		fresh := s.join("w", true)
		if fresh == a {
			t.Error("a fresh look is in an older batch")
		}
		if s.join("w", false) != fresh {
			t.Error("a look just after a fresh one is not in its batch")
		}
		time.Sleep(joinWithin + 1)
		late := s.join("w", false)
		if late == fresh {
			t.Error("a look 51 ms later is in the batch")
		}
		if !late.empty() == false || a.empty() {
			t.Error("a batch of one that others may join, or of two, is empty")
		}
		s.leave("w", a)
		if !a.empty() {
			t.Error("a batch of one that none may join is not empty")
		}
		s.leave("w", b)
		s.leave("w", late)
		if s.join("w", false) == late {
			t.Error("a batch that all have left is joined")
		}
		var none *Shared
		none.leave("w", none.join("w", false))
	})
}

func TestMemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memo[int]
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan struct{})
		go m.get(ctx, "k", func() (int, error) { <-hung; return 1, nil })
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, _, err := m.get(impatient, "k", nil); err == nil {
			t.Error("waited for ever")
		}
		if v, _, _ := m.get(t.Context(), "other", func() (int, error) { return 3, nil }); v != 3 {
			t.Error("another key is held")
		}
		got := make(chan int)
		for range 2 {
			go func() {
				v, _, _ := m.get(t.Context(), "k", func() (int, error) { return 2, nil })
				got <- v
			}()
		}
		synctest.Wait()
		cancel() // whoever is getting it gives up, and says nothing of it
		close(hung)
		if a, b := <-got, <-got; a != 2 || b != 2 {
			t.Errorf("got %d and %d from the next", a, b)
		}
		if v, mine, err := m.get(t.Context(), "k", nil); v != 2 || mine || err != nil {
			t.Errorf("got %d, %v, %v", v, mine, err)
		}
	})
}

// A directory that does not answer holds the looks that need it, and no other.
func TestHungDirectoryHoldsOnlyItsLooks(t *testing.T) {
	dir := tree(t, t.TempDir(), "slow/a", "a", "fast/b", "b", "fast/c/d", "d")
	ws, shared := sharing(t, dir, "slow/**", "fast/**", "**", "fast/c/*")
	release := make(chan struct{})
	var hangs sync.WaitGroup
	for _, w := range ws {
		w.source.files.patience = time.Millisecond
		f := withFaults(w)
		f.before["slow"] = func(call string) {
			if call == "list" {
				<-release
			}
		}
	}
	errs := make([]error, len(ws))
	ctx, cancel := context.WithCancel(t.Context())
	for _, i := range []int{0, 2} {
		hangs.Go(func() { _, errs[i] = ws[i].source.Look(ctx, ws[i].committed(), LookOptions{}) })
	}
	for range 3 { // in the batch of those that hang, and after it
		ws[1].poll()
		ws[3].poll()
		time.Sleep(joinWithin / 2) // real looks in real system calls: no bubble holds them
	}
	cancel()
	hangs.Wait()
	if errs[0] == nil || errs[2] == nil {
		t.Errorf("got %v and %v from the looks that need the directory", errs[0], errs[2])
	}
	close(release)
	for i, want := range map[int]string{0: "+slow/a", 2: "+fast/b +fast/c/d +slow/a"} {
		for ws[i].source.files.stuck.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
		ws[i].expect(want)
	}
	if len(shared.batches) != 0 {
		t.Error("a batch is kept after its looks")
	}
}

// What another look of the batch read counts only for the state of the file that this one sees.
func TestSharedDigestOfAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tree(t, t.TempDir(), "f", "1")
		ws, shared := sharing(t, dir, "*", "f", "**")
		withCounts(ws...)
		hold := func(fresh bool) *batch { return shared.join(ws[0].source.files.dir, fresh) }
		ws[0].poll()
		ws[1].poll()
		hold(true)
		tree(t, dir, "f", "22")
		ws[0].expect("~f")
		tree(t, dir, "f", "333")
		o := ws[1].expect("~f")
		if got, want := changeOf(t, o).Modified[0].Checksum, hashOf([]byte("333")); got != want {
			t.Errorf("got %s, want the digest of what is there", got)
		}
		o, err := ws[2].source.Look(t.Context(), Committed{}, LookOptions{Fresh: true})
		must(t, err)
		if got, want := changeOf(t, o).Added[0].Checksum, hashOf([]byte("333")); got != want {
			t.Errorf("fresh: got %s, want the digest of what is there", got)
		}
	})
}

// A fault that one look met is the other's too, and the next look asks again.
func TestFaultsAreShared(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/a", "a", "b", "b")
	ws, _ := sharing(t, dir, "**", "**/*")
	for _, w := range ws {
		f := withFaults(w)
		f.list["d"], f.read["b"] = unix.EIO, unix.EIO
	}
	ws[0].source.files.memory = &memory{}
	for _, w := range ws {
		if _, err := w.look(); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range ws {
		withFaults(w)
		w.expect("+b +d/a")
	}
}
