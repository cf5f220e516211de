package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"marbles/state"
)

// manyIn reads N ROOT PROJECT: how many are to be made in which workspace.
func manyIn(args []string) (n int, ws *state.Workspace, err error) {
	if n, err = strconv.Atoi(args[0]); err != nil {
		return 0, nil, err
	}
	root, err := state.Open(args[1])
	if err != nil {
		return 0, nil, err
	}
	ws, err = root.Workspace(args[2])
	return n, ws, err
}

// mkruns writes N settled runs into a workspace that has been registered, without the cost of durability, and then has
// the index rebuilt as a service would at its start.
func mkruns(args []string) error {
	n, ws, err := manyIn(args)
	if err != nil {
		return err
	}
	begin := time.Now().Add(-time.Duration(n) * time.Minute)
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Minute)
		id := state.NewRunID(at)
		status := "complete"
		if i%50 == 0 {
			status = "failed"
		}
		text := fmt.Sprintf(`{
  "version": 2,
  "pid": 1,
  "run": {
    "id": %q,
    "step": "job",
    "queueId": "qu-job",
    "status": %q,
    "input": {},
    "output": null,
    "error": null,
    "tags": {},
    "metadata": {},
    "extensions": {"triggerId": "job", "trigger": "schedule", "kind": "workflow"},
    "snapshot": {},
    "timestamps": {"createdAt": %d, "startedAt": %d, "completedAt": %d, "failedAt": null}
  },
  "frames": [],
  "jobs": [],
  "queue": {"id": "qu-job", "name": "job", "status": "active", "createdAt": %d, "extensions": {}, "lastError": null},
  "suspensions": []
}`, id, status, at.UnixMilli(), at.UnixMilli(), at.UnixMilli()+10, at.UnixMilli())
		if err := os.WriteFile(filepath.Join(ws.Dir(), "runs", id+".json"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return ws.RebuildIndex()
}

// mkparked makes N copies of the one parked run of a workspace, whose owner is gone, without the cost of durability.
func mkparked(args []string) error {
	n, ws, err := manyIn(args)
	if err != nil {
		return err
	}
	files, _, err := ws.Unsettled()
	if err != nil {
		return err
	}
	if len(files) != 1 || files[0].Run.Status != state.Suspended {
		return fmt.Errorf("want exactly one parked run in %s", ws.Dir())
	}
	model := files[0].Run.ID
	for _, kind := range []string{"runs/%s.json", "output/%s.jsonl"} {
		text, err := os.ReadFile(filepath.Join(ws.Dir(), fmt.Sprintf(kind, model)))
		if err != nil {
			return err
		}
		for i := range n - 1 {
			id := fmt.Sprintf("%s%05d", model[:len(model)-5], i)
			copied := strings.ReplaceAll(string(text), model, id)
			if err := os.WriteFile(filepath.Join(ws.Dir(), fmt.Sprintf(kind, id)), []byte(copied), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// schedules writes N schedules that never fire while anybody looks, spread over some files.
func schedules(args []string) error {
	n, _ := strconv.Atoi(args[0])
	files, _ := strconv.Atoi(args[1])
	if n < 1 || files < 1 {
		return fmt.Errorf("want N FILES DIR")
	}
	if err := os.MkdirAll(args[2], 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[2], "workflows.yaml"), []byte("workflows: {idle: {run: \"true\"}}\n"), 0o644); err != nil {
		return err
	}
	for f := range files {
		out, err := os.Create(filepath.Join(args[2], fmt.Sprintf("s%04d.yaml", f)))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "schedules:")
		for i := f; i < n; i += files {
			fmt.Fprintf(out, "  - {run: idle, key: k%06d, cron: \"%d %d 29 2 *\"}\n", i, i%60, i/60%24)
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
	return nil
}
