package monitor

import (
	"context"
	"errors"

	"marbles/monitor/live"
)

// Watch calls hint soon after something happened in a directory that the glob can match in, until ctx ends, and then
// returns nil (package live says how soon and how often, and what hint may do). Hints are no truth: looks by the cadence
// go on. A URL has no hints: that is an error at once.
func (s *Source) Watch(ctx context.Context, hub *live.Hub, hint func()) error {
	if s.files == nil {
		return errors.New("cannot watch a URL live: nobody says when it changes")
	}
	hub.Watch(ctx, s.files.tree(), hint)
	return nil
}
