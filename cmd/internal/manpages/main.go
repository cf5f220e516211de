// Command manpages writes the manual pages into a folder, in the layout of /usr/share/man: one for each command of
// marbles, and marbles.yaml(5). It is run when packages are built, so that what it links is not in marbles itself.
//
//	go run ./cmd/internal/manpages VERSION UNIX-TIME DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"marbles/cmd/internal/cli"
	"marbles/packaging"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "manpages: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want VERSION UNIX-TIME DIRECTORY, have %q", args)
	}
	seconds, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("cannot read the time: %w", err)
	}
	date := time.Unix(seconds, 0).UTC()
	commands, files := filepath.Join(args[2], "man1"), filepath.Join(args[2], "man5")
	for _, dir := range []string{commands, files} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	root := cli.Command(cli.Env{})
	plain(root)
	header := doc.GenManHeader{Section: "1", Date: &date, Source: "marbles " + args[0], Manual: "User Commands"}
	if err := doc.GenManTree(root, &header, commands); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(files, "marbles.yaml.5"), settings(args[0], date, packaging.Settings()), 0o644)
}

// plain makes the pages of a command, and of those below, the same at each build.
func plain(c *cobra.Command) {
	c.DisableAutoGenTag = true // it holds the time
	for _, sub := range c.Commands() {
		plain(sub)
	}
}

// settings is the page of the settings file: the file as packaged, which explains every key.
func settings(version string, date time.Time, file []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH MARBLES.YAML 5 %q %q \"File Formats\"\n", date.Format("Jan 2006"), "marbles "+version)
	b.WriteString(`.SH NAME
marbles.yaml \- settings of the marbles service
.SH SYNOPSIS
.nf
/etc/marbles/marbles.yaml
~/.config/marbles/marbles.yaml
.fi
.SH DESCRIPTION
YAML, a mapping of scalars and one list.
A flag of
.BR marbles (1)
and a variable of the environment (MARBLES_ and the key in upper case) go before the file.
The packaged system service reads the first of the two files, whatever a user types the second.
An unknown key is an error.
.SH KEYS
The file as it is packaged; what stands behind # is the default.
.PP
.nf
`)
	for line := range strings.Lines(string(file)) {
		line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line)
	}
	b.WriteString(".fi\n.SH SEE ALSO\n.BR marbles (1)\n")
	return b.Bytes()
}
