package scheduler

import (
	"fmt"
	"time"
)

// Moved says what a change of the clocks did to a slot, "" for nothing: its civil time was skipped, so that it came later,
// or came twice, and only the first counts.
func (s Slot) Moved(zone *time.Location) string {
	if s.Civil == "" {
		return ""
	}
	civil, err := time.Parse("2006-01-02T15:04", s.Civil)
	if err != nil {
		return ""
	}
	at := s.At.In(zone)
	where := zone.String()
	if where == "Local" {
		where = "this machine's zone"
	}
	if got := at.Format("2006-01-02T15:04"); got != s.Civil {
		from, to := changeBefore(at)
		return fmt.Sprintf("%s does not exist on %s in %s: the clocks went from %s to %s, so the slot came at %s",
			civil.Format("15:04"), civil.Format(time.DateOnly), where, from, to, at.Format("15:04"))
	}
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return ""
	}
	_, before := end.Add(-time.Second).Zone()
	_, after := end.Zone()
	back := time.Duration(before-after) * time.Second
	if again := at.Add(back); back > 0 && !again.Before(end) && again.Sub(end) < back {
		return fmt.Sprintf("%s came twice on %s in %s: the clocks went back from %s to %s, and the first time counts",
			civil.Format("15:04"), civil.Format(time.DateOnly), where, wall(end, before), wall(end, after))
	}
	return ""
}

// changeBefore is what the clocks showed at the latest change before an instant, before and after it.
func changeBefore(at time.Time) (from, to string) {
	start, _ := at.ZoneBounds()
	_, before := start.Add(-time.Second).In(at.Location()).Zone()
	_, after := start.Zone()
	return wall(start, before), wall(start, after)
}

// wall is what a clock that is so many seconds east of Greenwich shows.
func wall(at time.Time, offset int) string {
	return at.UTC().Add(time.Duration(offset) * time.Second).Format("15:04")
}
