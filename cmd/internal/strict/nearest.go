package strict

import (
	"iter"
	"strings"
)

// Nearest is the candidate most like text, or "": at most two edits away, or a third of its length where that is
// more, and one edit for names of up to three letters. Case is no difference but for ties. The first of equals wins.
func Nearest(text string, candidates iter.Seq[string]) string {
	folded := []rune(strings.ToLower(text))
	limit := max(2, len(folded)/3)
	if len(folded) <= 3 {
		limit = 1
	}
	best, found := limit+1, ""
	var rows [3][]int
	for c := range candidates {
		if c == text {
			return c
		}
		if best == 0 || abs(len(c)-len(text)) > 4*best { // bytes: a rune has at most four
			continue
		}
		if n := distance(folded, []rune(strings.ToLower(c)), best, &rows); n < best {
			best, found = n, c
		}
	}
	return found
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours between two texts; from
// limit on it is only known to be at least limit.
func distance(a, b []rune, limit int, rows *[3][]int) int {
	if abs(len(a)-len(b)) >= limit {
		return limit
	}
	for i := range rows {
		if cap(rows[i]) < len(b)+1 {
			rows[i] = make([]int, len(b)+1)
		}
		rows[i] = rows[i][:len(b)+1]
	}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		lowest := i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			lowest = min(lowest, row[j])
		}
		if lowest >= limit {
			return limit
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func abs(n int) int { return max(n, -n) }
