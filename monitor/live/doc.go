// Package live turns the system's file notifications into hints to look early. A hint is never the truth: it may come
// for nothing, and where none comes the look at the cadence finds the change.
//
// A service makes one Hub for the whole process, because the system gives few notifiers to a user (128 on Linux), and
// watches each live monitor through its source:
//
//	hub := live.New(log)
//	…
//	go source.Watch(ctx, hub, hint) // one for each monitor with `live: true`; it blocks until ctx ends
//
// hint is called within about 50 ms of the first event, once for all events of that time, from Watch's own goroutine.
// It must only set a mark and return, and nothing else is coalesced: while something writes all the time it is called
// up to twenty times a second, so that its user paces the looks by what they cost, and looks once more after a look
// during which a hint came. A hint is also given when watching begins and whenever events may have been lost.
//
// What cannot be watched (the system's limits, no permission, a queue that overflowed, an unmounted file system) is
// one warning until it is over, which is one line too; watching is tried again each minute, and nothing fails.
package live
