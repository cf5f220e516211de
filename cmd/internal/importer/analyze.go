package importer

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// elapses matches the instants of `systemd-analyze calendar` in UTC: in a line of their own where the machine's zone is
// another, else the only ones.
var elapses = regexp.MustCompile(`(?m)^\s*(?:Next elapse|Iter\. #\d+|\(in UTC\)): \w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC$`)

// SystemdAnalyze asks systemd-analyze for the next instants of OnCalendar= expressions; nil where it is not installed.
// zone is the machine's, as TZ names it.
func SystemdAnalyze(zone string) func(expr string, from time.Time, n int) ([]time.Time, error) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return nil
	}
	return func(expr string, from time.Time, n int) ([]time.Time, error) {
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, program, "calendar", "--iterations="+strconv.Itoa(n),
			"--base-time="+from.UTC().Format("2006-01-02 15:04:05 UTC"), "--", expr)
		c.Env = []string{"LC_ALL=C", "TZ=" + zone, "SYSTEMD_COLORS=0"}
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("cannot ask systemd-analyze: %w", err)
		}
		var all []time.Time
		for _, m := range elapses.FindAllSubmatch(out, -1) {
			at, err := time.Parse(time.DateTime, string(m[1]))
			if err != nil {
				return nil, fmt.Errorf("cannot read systemd-analyze: %w", err)
			}
			all = append(all, at)
		}
		return all, nil
	}
}
