// Package initsys hands clocks, and the service itself, to the machine's init system: systemd or launchd.
//
// A Plan is everything that one thing to install amounts to: files with their content, and the commands that make the
// manager take them up, or drop them. It is made from plain values and can be printed (a dry run does no more). Install
// carries it out all or nothing: what a failed step leaves is put back as it was, and the error names the command that
// failed. Remove takes away exactly what was written, which it knows by the digests that the caller kept: a file that
// somebody has changed since stays, unless it is forced.
//
// An init system's clock is never trusted with a decision. What a timer starts is `marbles roll --due`, which asks the
// key's history whether a slot is due, so that a timer may fire too often, or late, or beside the service: a slot is
// started once. Therefore a conversion has to name every slot, and may name more; what it cannot name, and what the init
// system does otherwise, is a note for the person who installs it. Only what would lose slots is refused.
//
// Nothing here knows where it is: a Host has the root, the home directory and the way to run commands, so that a test, or
// a dry run, touches no machine.
package initsys
