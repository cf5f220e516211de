package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A handler that ends marbles with kill -9 has not succeeded: its change is offered again.
func TestKillBetweenHandlerAndCommit(t *testing.T) {
	p := newProject(t, `monitors:
  - key: m
    watch: in/*
    every: 1s
    baseline: silent
    do: 'echo >> runs; [ -e killed ] || { touch killed; kill -9 $PPID; }'
`)
	p.write("in/f", "v1")
	p.must("roll", "m")
	p.write("in/f", "v2")
	d := p.spawn()
	if code := d.wait(); code != -1 {
		t.Fatalf("the service ends with %d", code)
	}
	rec, err := p.state().Monitor("m")
	if v1 := fmt.Sprintf("%x", sha256.Sum256([]byte("v1"))); err != nil || rec.Files["in/f"] != v1 {
		t.Fatalf("committed: %+v, %v", rec, err)
	}
	p.start()
	lines := func() int {
		text, _ := os.ReadFile(filepath.Join(p.dir, "runs"))
		return strings.Count(string(text), "\n")
	}
	eventually(t, "the change is handled", func() bool { return lines() == 2 })
	time.Sleep(1500 * time.Millisecond) // a further look
	if got := lines(); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
}

// A launch that was asked for starts once, whenever marbles dies between asking, starting and acknowledging.
func TestKillBetweenAskingAndStarting(t *testing.T) {
	p := newProject(t, `workflows:
  work: {run: 'true'}
monitors:
  - key: m
    watch: in/*
    every: 1h
    baseline: silent
    start: work
    input: '{digest: .modified[0].checksum}'
`)
	p.write("in/f", "v0")
	p.must("roll", "m")
	record := filepath.Join(p.state().Dir(), "monitors/m.json")
	pending := func() bool {
		text, _ := os.ReadFile(record)
		return strings.Contains(string(text), `"pending"`)
	}
	seen := 0
	const rounds = 20
	for i := range rounds {
		p.write("in/f", fmt.Sprint("v", i+1))
		c := p.command("roll", "m")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // ends with the process
			c.Wait()
			close(ended)
		}()
		for over := false; !over && !pending(); {
			select {
			case <-ended:
				over = true
			default:
			}
		}
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		c.Process.Kill()
		<-ended
		if pending() {
			seen++
		}
		p.run("roll", "m") // starts what is pending
		p.run("roll", "m") // and sees what is new, where the kill came before the commit
	}
	p.start().stop() // settles what the dead ones left
	t.Logf("a launch was pending after %d of %d kills", seen, rounds)
	starts := map[string]int{}
	for _, r := range p.runs() {
		if r.Name != "work" {
			continue
		}
		f, err := p.state().Run(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		starts[string(f.Run.Input)]++
		if !r.Status.Settled() {
			t.Errorf("run %s is %s", r.ID, r.Status)
		}
	}
	if len(starts) != rounds {
		t.Errorf("%d different launches, want %d", len(starts), rounds)
	}
	for input, n := range starts {
		if n != 1 {
			t.Errorf("%s was started %d times", input, n)
		}
	}
	if rec, err := p.state().Monitor("m"); err != nil || rec.Pending != nil {
		t.Errorf("pending at the end: %+v, %v", rec, err)
	}
}
