package service

import (
	"errors"
	"time"

	"marbles/monitor"
)

const (
	// firstRetry is how soon a source that just failed is looked at again, where its cadence is not quicker. Each further
	// failure doubles that, up to the cadence: a source that is well again is never found so later than one that was well.
	firstRetry = 10 * time.Second
	// maxRetryAfter bounds what a server may ask for.
	maxRetryAfter = 24 * time.Hour
)

// retryAt is when a source is to be looked at again after so many failures in a row; zero leaves that to its cadence.
// every is its interval, 0 for slots: those are kept to, unless the server said when to come back.
func retryAt(now time.Time, every time.Duration, failures int, err error) time.Time {
	wait := time.Duration(0)
	if every > 0 {
		wait = min(firstRetry, every)
		for n := 1; n < failures && wait < every; n++ {
			wait = min(2*wait, every)
		}
	}
	if asked := (*monitor.RetryError)(nil); errors.As(err, &asked) {
		wait = max(wait, min(asked.After, maxRetryAfter))
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(wait).Truncate(time.Millisecond) // as records keep it
}
