// Package runner does the work: ticks, locks, processes, steps, recovery.
//
// The order in which a tick writes is what makes it crash-safe:
//
//  1. take locks/schedule:<key>; under it settle what a dead owner left, and check that the tick is still due
//  2. write the run file: queued, then, with a place, open the journal and write running; with a place at once only
//     the latter. A slot's run that gets its place within a second counts as at once: until then no record names the
//     slot as started, so that it is due, which says as much as a queued run
//  3. write the key's record: slot, lastStart, run; side by side with the run file that says running, or, for a run that
//     waits longer, while it waits
//  4. append "spawn" to the journal, start the process, append "process" with its group and start ticks
//  5. at the end: journal end record, sync; then side by side the run file, and the slot ledger and the key's record;
//     with all of them written release the lock
//
// While runs are short, 2 and 3 of the next ones happen before there is room for their processes. One that waits longer
// than a second after all is written down as queued again.
//
// A crash before 3 leaves the slot due: it is started then. So does one within 3 that leaves a key's record naming a run
// that has no file: processes are spawned only after both are there. A crash between 3 and 4 leaves a run that never began
// (a journal without "spawn", written in this boot): it is started once. A crash after 4 leaves a run that is
// settled as failed, interrupted, after its processes were ended, or as its journal says where that has an end: it is
// never started again.
//
// What also always holds:
//
//   - A process that cannot be recorded is not started. Output that cannot be recorded costs only itself.
//   - Every step has a process group of its own. When its main process has ended, or has to, the group and what has
//     left it is ended too, before the run settles, as far as the system lets us find it.
//   - Only a process that is known to be a run's is signalled: by being our child, by its start ticks, or by the run's id
//     in its environment; never by its pid alone.
package runner
