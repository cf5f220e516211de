// Package service is the long-running service: it wires catalog, scheduler, monitor, runner and state together, speaks
// the systemd protocol, and handles signals, reload and drain.
//
// Data flows one way. A definition file becomes a catalog; its keys become triggers, armed from the histories on disk
// (arm.go); the loop decides that one is due and the service hands it to the dispatcher (dispatch.go), which makes a
// tick of it; the worker takes the key's lock, runs it and writes down how it went. `roll` uses the same dispatcher.
//
// A monitor's tick is in poll.go: look, health (health.go, backoff.go), handler and launch (handler.go, loop.go). memo.go
// is what is remembered between two looks, so that a monitor that sees nothing new neither reads nor writes; gate.go bounds
// how many look at once; live.go turns file notifications into ticks out of turn.
//
// What always holds: what is in force is one immutable plan, swapped whole by a reload that can no longer fail; a run keeps the
// definitions it started with; and the service returns only when its goroutines have ended.
package service
