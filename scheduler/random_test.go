package scheduler

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawField writes a random field, and says which values it stands for.
func drawField(t *rapid.T, f *cronField) (string, map[int]bool) {
	values := make(map[int]bool)
	var items []string
	for range rapid.IntRange(1, 3).Draw(t, "items") {
		lo := rapid.IntRange(f.min, f.max).Draw(t, "lo")
		hi := rapid.IntRange(lo, f.max).Draw(t, "hi")
		step := rapid.IntRange(1, f.cycle+1).Draw(t, "step")
		var item string
		switch rapid.IntRange(0, 5).Draw(t, "form") {
		case 0:
			lo, hi, step, item = f.min, f.max, 1, "*"
		case 1:
			lo, hi, item = f.min, f.max, fmt.Sprintf("?/%d", step)
		case 2:
			hi, step, item = lo, 1, fmt.Sprint(lo)
		case 3:
			hi, item = f.max, fmt.Sprintf("%d/%d", lo, step)
		case 4:
			step, item = 1, fmt.Sprintf("%d-%d", lo, hi)
		case 5:
			item = fmt.Sprintf("%d-%d/%d", lo, hi, step)
		}
		for v := lo; v <= hi; v += step {
			values[v] = true
		}
		items = append(items, item)
	}
	return strings.Join(items, ","), values
}

// Next and Latest against a walk through all days and minutes.
func TestRandomCrons(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var texts [5]string
		var sets [5]map[int]bool
		for i := range texts {
			texts[i], sets[i] = drawField(t, &cronFields[i])
		}
		expr := strings.Join(texts[:], " ")
		from := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "from"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()
		both := strings.ContainsAny(texts[2][:1], "*?") || strings.ContainsAny(texts[4][:1], "*?")

		var want []time.Time
		for day := from.Truncate(24 * time.Hour); day.Before(from.AddDate(42, 0, 0)) && len(want) < 5; day = day.AddDate(0, 0, 1) {
			date, weekday := sets[2][day.Day()], sets[4][int(day.Weekday())]
			if !sets[3][int(day.Month())] || both && !(date && weekday) || !date && !weekday {
				continue
			}
			for m := range 24 * 60 {
				if at := day.Add(time.Duration(m) * time.Minute); at.After(from) && sets[1][m/60] && sets[0][m%60] && len(want) < 5 {
					want = append(want, at)
				}
			}
		}
		c, _, err := ParseCron(expr)
		if (err != nil) != (len(want) == 0) {
			t.Fatalf("%s: %d slots, %v", expr, len(want), err)
		}
		if err != nil {
			return
		}
		for i, at := 0, from; i < len(want); i++ {
			s, _ := c.In(time.UTC).Next(at, nil)
			if !s.At.Equal(want[i]) {
				t.Fatalf("%s after %s: got %s, want %s", expr, at, s.At, want[i])
			}
			if gap := want[i].Sub(at); i > 0 && gap < c.ShortestGap() {
				t.Fatalf("%s: %s apart, but the shortest gap is %s", expr, gap, c.ShortestGap())
			}
			at = s.At
		}
		last := want[len(want)-1]
		oldest, newest, n, more, ok := c.In(time.UTC).Latest(from, last, nil)
		if !oldest.At.Equal(want[0]) || !newest.At.Equal(last) || n != len(want) || more || !ok {
			t.Fatalf("%s: Latest says %v %v %d", expr, oldest, newest, n)
		}
	})
}

// Whatever clock changes a zone file claims, time goes forward, every wall time fires once, and Next agrees with Resolve.
func TestHostileZones(t *testing.T) {
	const start = 1_700_000_040
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Int32Range(-maxOffset/60, maxOffset/60)
		gap := rapid.OneOf(rapid.Int64Range(1, 90), rapid.Int64Range(1, 6*24*60))
		at := int64(start)
		var whens []int64
		offsets := []int32{offset.Draw(t, "offset") * 60}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			at += gap.Draw(t, "gap") * 60
			whens = append(whens, at)
			offsets = append(offsets, offset.Draw(t, "offset")*60)
		}
		loc := zoneFile(t, whens, offsets)
		expr := rapid.SampledFrom([]string{"*/7 0-23 * * *", "0,59 2-9,13 * * *", "30 12 * * *", "13 0-23/3 */2 * *", "13 */3 * * *"}).Draw(t, "cron")
		c, _, err := ParseCron(expr)
		if err != nil {
			t.Fatal(err)
		}

		from, to := int64(start-4*daySeconds), at+4*daySeconds
		var want []int64
		nominal := make(map[int64]int64)
		for civil, ok := c.cal.next(from - maxOffset); ok && civil < to+maxOffset; civil, ok = c.cal.next(civil + 60) {
			if at := resolve(civil, loc); from < at && at < to {
				want = append(want, at)
				nominal[at] = max(nominal[at], civil)
			}
		}
		if c.cal.elapsed {
			want = nil
			for at := from + 60; at < to; at += 60 {
				_, offset := time.Unix(at, 0).In(loc).Zone()
				if civil, _ := c.cal.next(at + int64(offset)); civil == at+int64(offset) {
					want = append(want, at)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		now := time.Unix(from, 0)
		for _, w := range want {
			s, ok := c.Next(now, loc)
			if !ok || s.At.Unix() != w {
				t.Fatalf("after %d comes %d, want %d", now.Unix(), s.At.Unix(), w)
			}
			if civil := wallText(nominal[w], "2006-01-02T15:04"); s.Civil != civil && !c.cal.elapsed {
				t.Fatalf("at %d: the nominal time is %s, want %s", w, s.Civil, civil)
			}
			now = s.At
		}
		_, newest, n, more, _ := c.Latest(time.Unix(from, 0), time.Unix(to-1, 0), loc)
		if last := want[len(want)-1]; newest.At.Unix() != last || n != min(len(want), maxCount) || more != (len(want) > maxCount) {
			t.Fatalf("Latest says %s, %d, %t; want %d of %d", newest.At, n, more, last, len(want))
		}
	})
}

// zoneFile is a zone with given changes, through the format of RFC 9636.
func zoneFile(t *rapid.T, whens []int64, offsets []int32) *time.Location {
	block := func(b []byte, version byte, counts ...uint32) []byte {
		b = append(append(append(b, "TZif"...), version), make([]byte, 15)...)
		for _, n := range counts {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return b
	}
	b := block(nil, '2', 0, 0, 0, 0, 1, 1) // the version 1 block: one type, one character
	b = append(b, make([]byte, 7)...)
	b = block(b, '2', 0, 0, 0, uint32(len(whens)), uint32(len(offsets)), 4)
	for _, w := range whens {
		b = binary.BigEndian.AppendUint64(b, uint64(w))
	}
	for i := range whens {
		b = append(b, byte(i+1))
	}
	for _, o := range offsets {
		b = binary.BigEndian.AppendUint32(b, uint32(o))
		b = append(b, 0, 0)
	}
	b = append(b, "ABC\x00\n\n"...)
	loc, err := time.LoadLocationFromTZData("Hostile/Zone", b)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}
