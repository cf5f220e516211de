// Package cli is the command line: one file per command.
//
// Voice. Results go to stdout, everything else to stderr. Errors read "marbles: cannot …: …", lower case, naming the thing
// and the place, with a "hint:" line where a next command helps. A person at a terminal gets aligned tables and colour; a pipe
// gets plain text; --json gets one JSON document whose times are RFC 3339. Exit codes are in exit.go, and only there.
package cli
