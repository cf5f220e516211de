package scheduler

import (
	"fmt"
	"time"
)

// ClockChange describes how the next clock change within a year after t moves or doubles a slot of the
// cadence, as a sentence for a warning; "" where it does not.
func (c Cadence) ClockChange(t time.Time, local *time.Location) string {
	if c.text == "" || c.every > 0 || c.cal.elapsed {
		return ""
	}
	loc, now := c.zone(local), seconds(t)
	for s := spanAt(now-reach, loc); s.start <= now+366*daySeconds && s.start < forever; s = s.after(loc) {
		if s.start <= now || !s.follows {
			continue
		}
		if lo, hi := s.skipped(); lo < hi {
			if civil, ok := c.cal.next(lo); ok && civil < hi {
				return skipSentence(civil, civil-s.before+s.offset, loc)
			}
			continue
		}
		// The wall goes back: what it showed from here up to the floor, it shows again.
		lo := max(s.start+s.offset, now+1+s.before)
		if civil, ok := c.cal.next(lo); ok && civil < s.floor {
			return fmt.Sprintf("%s happens twice in %s and runs at its first occurrence",
				wallText(civil, "15:04 on 2006-01-02"), zoneName(loc))
		}
	}
	return ""
}

func skipSentence(civil, moved int64, loc *time.Location) string {
	layout := "15:04"
	if floorDiv(civil, daySeconds) != floorDiv(moved, daySeconds) {
		layout = "15:04 on 2006-01-02"
	}
	return fmt.Sprintf("%s is skipped by the clock change in %s and runs at %s instead",
		wallText(civil, "15:04 on 2006-01-02"), zoneName(loc), wallText(moved, layout))
}

func wallText(civil int64, layout string) string { return time.Unix(civil, 0).UTC().Format(layout) }

func zoneName(loc *time.Location) string {
	if name := loc.String(); name != "" && name != "Local" {
		return name
	}
	return "the machine's time zone"
}
