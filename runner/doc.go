// Package runner does the work: ticks, locks, processes, steps, recovery.
//
// The order in which a tick writes is what makes it crash-safe:
//
//  1. take locks/schedule:<key>; under it settle what a dead owner left, and check that the tick is still due
//  2. write the run file (queued, or running at once where a place is free)
//  3. write the key's record: slot, lastStart, run
//  4. append "spawn" to the journal, start the process, append "process" with its group and start ticks
//  5. at the end: journal end record, sync; run file; slot ledger; key's record; release the lock
//
// A crash before 3 leaves the slot due: it is started then. A crash between 3 and 4 leaves a run that never began
// (a journal without "spawn", written in this boot): it is started once. A crash after 4 leaves a run that is
// settled as failed, interrupted, after its processes were ended: it is never started again.
package runner
