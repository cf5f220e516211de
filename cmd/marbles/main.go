// Command marbles decides when work runs, notices what changed, runs it, and never loses track of it.
package main

import (
	"os"
	_ "time/tzdata" // a machine without a tz database still knows its zones

	"marbles/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Process()))
}
