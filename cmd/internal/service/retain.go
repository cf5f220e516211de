package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/state"
)

const (
	// retainFirst is how long after its start a service first deletes history: it has more urgent things to do then.
	retainFirst = time.Minute
	retainEvery = 10 * time.Minute
	// retainRuns is after how many settled runs it does so earlier.
	retainRuns = 2000
	// retainPart is how many runs are deleted between two pauses, which leave the disk to what runs.
	retainPart  = 256
	retainPause = 50 * time.Millisecond
)

// retainer deletes what retention does not keep, while the service runs.
type retainer struct {
	s           *service
	first       time.Duration
	every       time.Duration
	settledRuns atomic.Int64
	many        chan struct{}
	done        chan struct{}
}

func newRetainer(s *service) *retainer {
	return &retainer{s: s, first: retainFirst, every: retainEvery, many: make(chan struct{}, 1), done: make(chan struct{})}
}

// settled counts the runs that settle. It does not block.
func (r *retainer) settled() {
	if r.settledRuns.Add(1)%retainRuns == 0 {
		select {
		case r.many <- struct{}{}:
		default:
		}
	}
}

// run looks from time to time until ctx ends.
func (r *retainer) run(ctx context.Context) {
	defer close(r.done)
	wait := time.NewTimer(r.first)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		case <-r.many:
		}
		if p := r.s.plan.Load(); p != nil {
			for _, t := range p.targets {
				r.prune(ctx, t)
			}
		}
		wait.Reset(r.every)
	}
}

// prune deletes what one workspace does not keep, in parts.
func (r *retainer) prune(ctx context.Context, t *Target) {
	log := r.s.Log.With("workspace", t.Workspace.ID())
	k := r.s.Settings
	keep := state.Keep{Runs: k.KeepRuns, Age: k.KeepAge, Bytes: k.KeepBytes, Names: Keeps(t.Catalog)}
	plan, err := t.Workspace.PlanPrune(ctx, keep, time.Now())
	if err != nil {
		r.failed(ctx, log, err)
		return
	}
	if plan.Empty() {
		return
	}
	var freed int64
	var errs []error
	for part := range plan.Parts(retainPart) {
		n, err := t.Workspace.Prune(ctx, part)
		freed += n
		errs = append(errs, err)
		pause := time.NewTimer(retainPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
	r.failed(ctx, log, errors.Join(errs...))
	if freed > 0 {
		log.Info("old runs were deleted", "runs", len(plan.Runs), "freed_bytes", freed, "kept", plan.Kept)
	}
}

func (r *retainer) failed(ctx context.Context, log *slog.Logger, err error) {
	if err != nil && ctx.Err() == nil {
		log.Warn("retention could not delete everything", "error", err)
	}
}

// Keeps are the workflows that have a retention of their own.
func Keeps(cat *catalog.Catalog) map[string]state.Keep {
	names := map[string]state.Keep{}
	for _, w := range cat.Workflows {
		if w.Keep.Runs != 0 || w.Keep.Age != 0 {
			names[w.Name] = w.Keep
		}
	}
	return names
}
