package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"marbles/cmd/internal/catalog"
	"marbles/monitor"
	"marbles/runner"
	"marbles/state"
)

// failed takes note of a look that failed.
func failed(h *state.Health, m *catalog.Monitor, now time.Time, err error) {
	if h.Failures == 0 {
		h.Since = state.Stamp{Time: now}
	}
	h.Failures++
	h.LastError = err.Error()
	h.Successes, h.UpSince = 0, state.Stamp{}
	h.RetryAt = state.Stamp{Time: retryAt(now, m.Cadence.Interval(), h.Failures, err)}
	if !h.Down && h.Failures >= m.FailAfter {
		h.Down, h.DownSince = true, state.Stamp{Time: now}
		h.Pending = notice(h.Pending, state.NoticeDown, m.OnDown)
	}
}

// succeeded takes note of a look that did not fail.
func succeeded(h *state.Health, m *catalog.Monitor, now time.Time, obs *monitor.Observation) {
	h.RetryAt = state.Stamp{}
	if !obs.CertExpires.IsZero() {
		h.CertExpires = state.Stamp{Time: obs.CertExpires.Truncate(time.Millisecond)}
	}
	switch {
	case h.Down:
		if h.Successes == 0 {
			h.UpSince = state.Stamp{Time: now}
		}
		h.Successes++
		if h.Successes < m.RecoverAfter {
			return
		}
		h.Down, h.Successes = false, 0
		h.Pending = notice(h.Pending, state.NoticeUp, m.OnUp)
	case h.Pending == "":
		h.DownSince, h.UpSince = state.Stamp{}, state.Stamp{}
	}
	// An outage that is still to be told keeps what will be told of it.
	if h.Pending == "" {
		h.Failures, h.Since, h.LastError = 0, state.Stamp{}, ""
	}
}

// notice is what is to be told now. Where the last notice was never heard, what was heard before it is true again,
// and there is nothing to tell.
func notice(pending, news state.Notice, handler *runner.Workflow) state.Notice {
	if pending != "" || handler == nil {
		return ""
	}
	return news
}

// healthChange is what the handlers on_down and on_up get as MARBLES_CHANGE_FILE.
type healthChange struct {
	Kind      string       `json:"kind"` // "health"
	State     state.Notice `json:"state"`
	Failures  int          `json:"failures"` // looks that failed in the outage
	Since     state.Stamp  `json:"since"`    // when the first look failed; up: when the first one was good again
	DownSince state.Stamp  `json:"downSince,omitzero"`
	Error     string       `json:"error"` // of the last look that failed
}

func changeOf(h *state.Health) healthChange {
	c := healthChange{Kind: "health", State: h.Pending, Failures: h.Failures, Since: h.Since, Error: h.LastError}
	if h.Pending == state.NoticeUp {
		c.Since, c.DownSince = h.UpSince, h.DownSince
	}
	return c
}

// tell runs the handler of a pending notice. The notice is pending on record until the handler succeeded: a crash in
// between tells it once more.
func (d *Dispatcher) tell(ctx context.Context, v *view, tk *runner.Ticking) error {
	h := v.health
	if h.Pending == "" {
		return nil
	}
	handler := v.m.OnDown
	if h.Pending == state.NoticeUp {
		handler = v.m.OnUp
	}
	if handler != nil {
		text, err := json.Marshal(changeOf(h))
		if err != nil {
			return err
		}
		if _, err := tk.Launch(ctx, runner.Launch{
			Workspace: v.t.Workspace,
			Workflow:  handler,
			Trigger:   triggerHealth,
			Kind:      "handler",
			Key:       v.m.Key,
			Slot:      tk.Slot,
			Files:     map[string][]byte{changeFile: text},
			Echo:      d.Echo,
		}); err != nil {
			return fmt.Errorf("cannot tell that %s is %s: %w", v.m.Key, h.Pending, err)
		}
	}
	next := *h
	next.Pending = ""
	if !next.Down {
		next.Failures, next.Since, next.LastError, next.DownSince, next.UpSince = 0, state.Stamp{}, "", state.Stamp{}, state.Stamp{}
	}
	d.keepHealth(v, &next)
	return nil
}

// CertLine says that a certificate ends soon; "" where it does not. The days are those of the calendar in UTC.
func CertLine(expires, now time.Time, days int) string {
	if expires.IsZero() || days <= 0 || expires.Sub(now) > time.Duration(days)*24*time.Hour {
		return ""
	}
	const day = 24 * time.Hour
	left := int(expires.UTC().Truncate(day).Sub(now.UTC().Truncate(day)) / day)
	date := expires.UTC().Format(time.DateOnly)
	switch {
	case !expires.After(now):
		return "certificate ended " + date
	case left == 0:
		return "certificate ends " + date + ", today"
	case left == 1:
		return "certificate ends " + date + ", in 1 day"
	}
	return fmt.Sprintf("certificate ends %s, in %d days", date, left)
}

// isOwnLine reports whether a degraded line is the service's, and not about what a look could not see.
func isOwnLine(line string) bool { return line == loopLine || isCertLine(line) }

func isCertLine(line string) bool { return strings.HasPrefix(line, "certificate end") }

// logHealth says what has changed since the last look, once.
func (d *Dispatcher) logHealth(v *view, old *state.Health) {
	h, log := v.health, d.Log.With("key", v.m.Key, "workspace", v.t.Workspace.ID())
	switch {
	case h.Down && !old.Down:
		log.Warn("source is down", "failures", h.Failures, "since", h.Since.Time, "error", h.LastError)
	case old.Down && !h.Down:
		log.Info("source is up again", "down_since", old.DownSince.Time)
	}
	if i := slices.IndexFunc(h.Degraded, isCertLine); i >= 0 && !slices.ContainsFunc(old.Degraded, isCertLine) {
		log.Warn("certificate of the source ends soon", "degraded", h.Degraded[i])
	}
	unseen := func(h *state.Health) []string {
		return slices.DeleteFunc(slices.Clone(h.Degraded), isOwnLine)
	}
	now, before := unseen(h), unseen(old)
	switch {
	case slices.Equal(now, before):
	case len(now) == 0:
		log.Info("monitor sees everything again")
	default:
		log.Warn("monitor sees only a part", "degraded", now)
	}
}

// degrade sets what is not as it should be, and since when.
func degrade(h *state.Health, now time.Time, lines []string) {
	h.Degraded = lines
	switch {
	case len(lines) == 0:
		h.DegradedSince = state.Stamp{}
	case h.DegradedSince.IsZero():
		h.DegradedSince = state.Stamp{Time: now}
	}
}

// loadHealth gives v the health of its monitor. What cannot be read costs only itself: a damaged record is set aside, and
// one that may be whole is left alone and nothing is written over it.
func (d *Dispatcher) loadHealth(v *view) {
	memo, ws, key := v.memo, v.t.Workspace, v.m.Key
	stamp, err := ws.HealthStamp(key)
	if err == nil && memo.health != nil && stamp == memo.healthStamp {
		v.health = memo.health
		return
	}
	var h *state.Health
	if err == nil {
		h, err = ws.Health(key)
	}
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		to, aerr := damaged.SetAside()
		d.Log.Warn("health of a monitor is damaged, beginning anew", "key", key, "error", err, "set_aside", to)
		err, stamp = aerr, state.FileStamp{}
	}
	switch {
	case err == nil:
		memo.healthError = ""
	case memo.healthError != err.Error():
		memo.healthError = err.Error()
		d.Log.Warn("health of a monitor cannot be used, it is kept in memory only", "key", key, "error", err)
	}
	switch {
	case h != nil:
	case err != nil && memo.health != nil:
		h = memo.health
	default:
		h = &state.Health{}
	}
	memo.health, memo.healthStamp = h, stamp
	v.health = h
}

// keepHealth puts a monitor's health into force, and on record where something of it changed: what is to be told,
// durably. The time of the last look alone is no change, so that a monitor that is well writes nothing.
func (d *Dispatcher) keepHealth(v *view, next *state.Health) {
	memo, old := v.memo, v.health
	memo.health, v.health = next, next
	if memo.healthError != "" {
		return
	}
	// One name may stand for servers with different certificates, which answer in turn.
	memo.healthOwed = memo.healthOwed || !next.CertExpires.Equal(old.CertExpires.Time)
	if sameHealth(old, next) && !(memo.healthOwed && time.Since(memo.healthKept) >= keptEvery) {
		return
	}
	write := v.t.Workspace.WriteHealthLazily
	if next.Pending != old.Pending || next.Down != old.Down {
		write = v.t.Workspace.WriteHealth
	}
	err := write(v.m.Key, next)
	memo.healthKept, memo.healthOwed = time.Now(), err != nil
	if err == nil {
		memo.healthStamp, err = v.t.Workspace.HealthStamp(v.m.Key)
	}
	if err != nil {
		d.Log.Error("health of a monitor cannot be written", "key", v.m.Key, "error", err)
	}
}

// sameHealth reports whether two say the same, but for the last look and the certificate's end.
func sameHealth(a, b *state.Health) bool {
	same := func(a, b state.Stamp) bool { return a.Equal(b.Time) }
	loop := a.Handler == b.Handler || a.Handler != nil && b.Handler != nil &&
		same(a.Handler.Start, b.Handler.Start) && same(a.Handler.End, b.Handler.End) && a.Handler.Count == b.Handler.Count
	return loop && a.Failures == b.Failures && a.LastError == b.LastError && same(a.Since, b.Since) &&
		a.Down == b.Down && same(a.DownSince, b.DownSince) && a.Successes == b.Successes && same(a.UpSince, b.UpSince) &&
		a.Pending == b.Pending && same(a.RetryAt, b.RetryAt) &&
		slices.Equal(a.Degraded, b.Degraded) && same(a.DegradedSince, b.DegradedSince)
}
