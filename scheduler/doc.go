// Package scheduler decides when: cadences, civil time to instants, missed slots,
// and the loop that waits for the next due key.
//
// What always holds:
//
//   - Next is strictly later than the instant it is asked from.
//   - A civil time that a clock change skips is read with the offset before the change (RFC
//     5545, 3.3.5); one that occurs twice fires at its first occurrence only. Each fires once, and
//     those that fall on one instant are one slot. A cron whose hour field begins with * or ?
//     follows elapsed time instead: it fires whenever the wall shows a time that matches.
//   - The loop sleeps on the wall clock: it looks again at least every 10 s, so suspend,
//     clock steps and a changed system zone are noticed. When nothing is due it does
//     no work proportional to the number of triggers.
//   - The loop does no I/O except to look at the system zone; what was missed is handed
//     to the caller, who records it.
package scheduler
