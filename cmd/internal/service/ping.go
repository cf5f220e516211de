package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/catalog"
	"marbles/monitor"
	"marbles/runner"
	"marbles/state"
)

const (
	pingTries = 3
	pingWait  = 5 * time.Second
)

// ping tells a URL of a key that one of its runs begins or has ended, by a run of its own. It neither blocks nor fails the
// run that it tells of, and is not made up for after a crash: its other end notices that it did not come.
func (h *Hooks) ping(ws *state.Workspace, f *state.RunFile, event string) {
	key := f.Run.Extensions.TriggerID
	cat := h.Catalog(ws)
	if key == "" || cat == nil {
		return
	}
	p := catalog.Ping{}
	if s := cat.Schedule(key); s != nil {
		p = s.Ping
	} else if m := cat.Monitor(key); m != nil {
		p = m.Ping
	}
	if p.IsZero() {
		return
	}
	call := func(ctx context.Context, c runner.Call) (jsontext.Value, error) {
		address, err := p.URL(event)
		if err != nil || address == "" {
			return nil, err
		}
		said, err := monitor.Ping(ctx, address, "marbles")
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintln(c.Output, said)
		return nil, err
	}
	if address, err := p.URL(event); err == nil && address == "" {
		return // nothing is asked for at this event
	}
	h.wait.Go(func() {
		input := jsontext.Value(fmt.Sprintf(`{"event":%q,"run":%q}`, event, f.Run.ID))
		_, err := h.Worker.Start(runner.Launch{
			Workspace: ws, Input: input, Trigger: kindHook, Kind: kindPing,
			Workflow: &runner.Workflow{Name: key + ":ping", Steps: []runner.Step{{
				Name: event, Call: call, Retry: runner.Retry{Attempts: pingTries, Wait: pingWait},
			}}},
		})
		if err != nil && !errors.Is(err, runner.ErrDraining) {
			h.Log.Error("ping cannot be started", "key", key, "event", event, "error", err)
		}
	})
}
