package cli

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/strict"
	"marbles/state"
)

//go:embed starters/*.yaml
var starters embed.FS

// starterNames are the starters there are; the first is the default.
func starterNames() []string {
	names := []string{"basic"}
	entries, _ := fs.ReadDir(starters, "starters") // embedded: cannot fail
	for _, e := range entries {
		if n := strings.TrimSuffix(e.Name(), ".yaml"); n != "basic" {
			names = append(names, n)
		}
	}
	return names
}

func newInit(a *app) *cobra.Command {
	names := starterNames()
	return &cobra.Command{
		Use:       "init [starter]",
		Short:     "Write a starter definition file; never overwrite one",
		Long:      "Write a starter to .foundry/marbles/marbles.yaml below this directory. A file that exists is never overwritten.\n\nStarters: " + strings.Join(names, ", "),
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(names, args[0]) {
				return usage("init takes one starter: %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := names[0]
			if len(args) == 1 {
				name = args[0]
			}
			text, err := starters.ReadFile("starters/" + name + ".yaml")
			if err != nil {
				return err
			}
			path := filepath.Join(a.Cwd, ".foundry", "marbles", "marbles.yaml")
			if a.dryRun {
				fmt.Fprintf(a.Stdout, "would write %s:\n\n%s", strict.OneLine(path), text)
				return nil
			}
			if err := writeStarter(path, text); err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "wrote %s\n", strict.OneLine(path))
			fmt.Fprintln(a.Stderr, "hint: marbles check, marbles list, then marbles run")
			return nil
		},
	}
}

// writeStarter writes a starter into a folder that has no definitions yet.
func writeStarter(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot write the starter: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot write the starter: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
			return state.Hint(usage("cannot write a starter: %s exists already", filepath.Join(dir, e.Name())), "marbles list")
		}
	}
	return writeNew(path, text, 0o644)
}

// writeNew creates a file whole or not at all: a link with a name that must not exist yet. Its folder is made.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return usage("cannot write %s: it exists already", path)
	} else if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
