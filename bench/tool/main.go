// Command tool is what the bench scripts measure with: paired timings of whole processes, a skeleton that makes the
// same process and sync calls as a run and nothing else, and makers of large trees. It is not part of marbles.
package main

import (
	"fmt"
	"os"
)

func main() {
	commands := map[string]func([]string) error{
		"pair":      pair,      // pair -n 20 A... ::: B...   wall and peak memory of A and B, in turn
		"skeleton":  skeleton,  // skeleton -n 2000 -p 16 DIR   runs a second of the bare calls
		"serial":    serial,    // serial N   seconds of N times sh -c true, one after the other
		"mkruns":    mkruns,    // mkruns N ROOT PROJECT   N settled run files and their index
		"mkparked":  mkparked,  // mkparked N ROOT PROJECT   N parked runs whose owner is gone
		"proc":      proc,      // proc PID   resident memory and CPU seconds of a process
		"spread":    spread,    // spread ROOT PROJECT   first start, last start, last end of the runs there
		"journal":   journal,   // journal ROOT PROJECT RUN STEP STREAM   the bytes of a stream, put together again
		"schedules": schedules, // schedules N FILES DIR   N schedules that never fire, over some files
		"urls":      urls,      // urls N http|https DIR   serves N URLs and writes their monitors, until it is killed
		"mkfiles":   mkfiles,   // mkfiles N DIR   N files of 1 KiB
		"looks":     looks,     // looks N DIR   N first and N unchanged looks at DIR beside sha256sum and git status
		"count":     count,     // count URL   how many requests a server of urls has answered
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: tool pair|skeleton|serial|mkruns|mkparked|proc|spread|journal|schedules|urls|mkfiles|looks|count …")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}
