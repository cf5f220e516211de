package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"
)

// printJSON writes one document, two-space indented.
func printJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// table writes aligned columns; the first row is the head. Cells must not hold tabs or newlines: clean them.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	return tw.Flush()
}

// clean makes foreign text safe for one cell of a terminal: no control characters, at most n runes.
func clean(text string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range text {
		if count++; count > n {
			return b.String() + "…"
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// clock renders an instant for people, in local time; "-" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// instant is RFC 3339 for JSON; nil (null) for none.
func instant(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.Format(time.RFC3339Nano)
	return &s
}

// took renders how long something took, or has taken so far.
func took(from, to time.Time) string {
	if from.IsZero() {
		return "-"
	}
	if to.IsZero() {
		to = time.Now()
	}
	d := to.Sub(from)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// paint colours text for a terminal; everywhere else it stays plain.
type paint bool

func (a *app) paint(w io.Writer) paint {
	f, ok := w.(*os.File)
	return paint(ok && term.IsTerminal(int(f.Fd())) && a.getenv("NO_COLOR") == "")
}

// status colours the states a person looks for.
func (p paint) status(s string) string {
	if !p {
		return s
	}
	switch {
	case strings.HasPrefix(s, "failed"), strings.Contains(s, "orphaned"):
		return "\x1b[31m" + s + "\x1b[0m"
	case strings.HasPrefix(s, "complete"):
		return "\x1b[32m" + s + "\x1b[0m"
	case strings.HasPrefix(s, "running"), strings.HasPrefix(s, "queued"):
		return "\x1b[33m" + s + "\x1b[0m"
	}
	return s
}
