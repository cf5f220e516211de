package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/strict"
	"marbles/state"
)

// Exit codes: the interface of every command.
const (
	exitDone  = 0
	exitRun   = 1
	exitUsage = 2
	exitState = 3
	exitAsked = 75 // EX_TEMPFAIL, which the runner knows
)

// exitCodes is the one table of them: help and docs are made from it.
var exitCodes = [...]struct {
	code int
	text string
}{
	{exitDone, "done, or parked, or skipped because another process holds the key or it is paused"},
	{exitRun, "the run failed, was cancelled or interrupted; a refused answer; or a second service was refused"},
	{exitUsage, "usage or definition error, or an unknown key or run"},
	{exitState, "the state root could not be used"},
	{exitAsked, "of `marbles ask` only: the question waits for its answer; a step that ends so is parked"},
}

func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %-2d  %s\n", e.code, e.text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// codedError is an error with its exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// settingsError says that it is the settings that are wrong, not the definitions.
type settingsError struct{ err error }

func (e *settingsError) Error() string { return "cannot use the settings: " + e.err.Error() }
func (e *settingsError) Unwrap() error { return e.err }

// errSilent fails a command that has said everything already.
var errSilent = errors.New("")

func usage(format string, args ...any) error {
	return &codedError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func usageError(c *cobra.Command, err error) error {
	return state.Hint(&codedError{code: exitUsage, err: err}, c.CommandPath()+" --help")
}

func unknownCommand(c *cobra.Command, name string) error {
	err := usage("unknown command %q", name)
	if near := c.SuggestionsFor(name); len(near) > 0 {
		return state.Hint(err, "did you mean "+c.CommandPath()+" "+near[0]+"?")
	}
	return state.Hint(err, c.CommandPath()+" --help")
}

// code maps an error to its exit code.
func code(err error) int {
	var coded *codedError
	var diags catalog.Diagnostics
	var settings *settingsError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &settings):
		return exitUsage
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &diags):
		return exitUsage
	case errors.Is(err, catalog.ErrSource):
		return exitUsage
	case errors.Is(err, state.ErrRoot):
		return exitState
	case errors.Is(err, service.ErrSecond):
		return exitRun
	}
	return exitRun
}

// exit prints an error as a person reads it and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return exitDone
	}
	var diags catalog.Diagnostics
	var settings *settingsError
	if f, ok := a.Stderr.(*os.File); ok && isJournal(f, a.getenv("JOURNAL_STREAM")) {
		a.Stderr = errorLines{f}
	}
	switch text := err.Error(); {
	case errors.As(err, &diags):
		for _, d := range diags {
			fmt.Fprintln(a.Stderr, strict.OneLine(d.String()))
		}
		what := "definitions"
		if errors.As(err, &settings) {
			what = "settings"
		}
		fmt.Fprintf(a.Stderr, "marbles: cannot use the %s: %s\n", what, count(len(diags), "error"))
	case text != "":
		fmt.Fprintf(a.Stderr, "marbles: %s\n", safe(text))
	}
	if hint := state.HintOf(err); hint != "" {
		fmt.Fprintf(a.Stderr, "hint: %s\n", strict.OneLine(hint))
	}
	return code(err)
}

// errorLines writes lines as sd-daemon(3) has it, so that the journal keeps them as errors.
type errorLines struct{ to io.Writer }

func (e errorLines) Write(b []byte) (int, error) {
	var out []byte
	for line := range bytes.Lines(b) {
		out = append(append(out, "<3>"...), line...)
	}
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
