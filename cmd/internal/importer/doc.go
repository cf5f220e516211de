// Package importer turns crontabs, systemd timers and launchd plists into definition files.
//
// What always holds: nothing is lost silently. Every line (or key, of a plist) is either carried over or named in a
// [Note], with its place and the next step. Whatever text it writes loads as a catalog. When the old program would run
// a job is reckoned by rules of its own, never with the scheduler's: the two are compared, and they must not be wrong
// together. It reads files and writes none.
package importer
