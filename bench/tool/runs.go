package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"marbles/state"
)

// spread reads every run of a workspace and prints when the first and last began and the last ended, in seconds after
// a given instant (Unix seconds), how many there are, and how many a second completed.
func spread(args []string) error {
	root, err := state.OpenReader(args[0])
	if err != nil {
		return err
	}
	ws, err := root.Workspace(args[1])
	if err != nil {
		return err
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil {
		return err
	}
	var first, last, end time.Time
	for _, r := range list.Runs {
		if first.IsZero() || r.Started.Before(first) {
			first = r.Started
		}
		if r.Started.After(last) {
			last = r.Started
		}
		if r.Ended.After(end) {
			end = r.Ended
		}
	}
	due := first.Truncate(time.Second)
	fmt.Printf("runs %d first_start %.3f last_start %.3f last_end %.3f rate %.0f\n", len(list.Runs),
		first.Sub(due).Seconds(), last.Sub(due).Seconds(), end.Sub(due).Seconds(), float64(len(list.Runs))/end.Sub(first).Seconds())
	return nil
}

// journal writes the bytes of one stream of one step of a run to stdout.
func journal(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("want ROOT PROJECT RUN STEP STREAM")
	}
	root, err := state.OpenReader(args[0])
	if err != nil {
		return err
	}
	ws, err := root.Workspace(args[1])
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	err = ws.ReadJournal(args[2], func(e state.Entry) error {
		if e.Kind == "text" && e.Step == args[3] && e.Stream == args[4] {
			_, err := out.Write(e.Text)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.Flush()
}
