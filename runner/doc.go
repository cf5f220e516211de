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
// A run that parks, and what becomes of it, is written in this order:
//
//  1. sync the journal; write the run file as suspended, with what it waits for, under locks/edit-<run>; then the slot
//     ledger says parked, and the key's lock, the workflow's turn, the place and the private directory are given back
//  2. an answer is written under locks/edit-<run>, and then a request "look"; a deadline or the end of a wait likewise
//     by the owner, without the request
//  3. with a place: under locks/edit-<run> read the file again, open the journal, which says start once more, and write
//     running; only then do steps begin. They go on from the records in the file
//  4. the end is as in 5 above; the key's history follows under the key's lock, which the settler waits for
//
// Every change of a run that is parked is made under locks/edit-<run>, after reading the file again, so that of two answers
// one is refused, and an answer is never lost to a pause, or to the run going on.
//
// A crash while a run parks, before 1 is written, leaves a run that was running: interrupted. After it the run is parked:
// whoever adopts it finds all it needs in the file. A crash within an adoption leaves the file as it was, or with a dead
// owner: the next one adopts it. A crash after an answer and before the request leaves a parked run whose file can go on:
// its owner sees that when it looks next, and whoever adopts it at once. A crash in 3 before running is written leaves it
// parked, and able to go on; after it and before a step has ended or has a process, a run that never began: it is started, and keeps
// its records; later, interrupted. A parked run that is cancelled goes on as in 3 to its final steps alone: a crash before
// running is written leaves the request, which the next one acts on; after it, the run is settled as interrupted. A
// retry takes the run's line out of the lists first, durably, then writes the file: a crash in between leaves a settled run
// that is read from its file. The restart of an interrupted run is filed before the file says that it was interrupted and
// names the one that stands for it, and is started only after that: a crash in between finds the request, and uses its id
// again; a run of that id that is there already has been started.
//
// What also always holds:
//
//   - A process that cannot be recorded is not started. Output that cannot be recorded costs only itself.
//   - Every step has a process group of its own. When its main process has ended, or has to, the group and what has
//     left it is ended too, before the run settles, as far as the system lets us find it.
//   - Only a process that is known to be a run's is signalled: by being our child, by its start ticks, or by the run's id
//     in its environment; never by its pid alone.
package runner
