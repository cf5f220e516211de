package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"

	"marbles/cmd/internal/strict"
)

// output is a command's standard output. It keeps its first error, so that a command whose output is lost fails even
// where it does not look at each write.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil {
		err = fmt.Errorf("cannot write the output: %w", err)
	}
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// printJSON writes one document, two-space indented. Bytes that are not UTF-8 become U+FFFD.
func printJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// table writes aligned columns; the first row is the head. On a terminal the head is dim, and the columns that hold a
// state are coloured.
func (p paint) table(w io.Writer, rows [][]string) error {
	widths := []int{}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			cell = strict.OneLine(cell)
			row[i] = cell
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		line := ""
		for i, cell := range row {
			text := cell
			switch head := rows[0][min(i, len(rows[0])-1)]; {
			case n == 0 && len(rows) > 1:
				text = p.wrap("2", cell)
			case head == "STATUS" || head == "LAST" || head == "status" || head == "ENDED AS":
				text = p.status(cell)
			}
			if strings.Join(row[i+1:], "") == "" { // nothing follows: no padding
				line += text
				break
			}
			line += text + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// facts writes names and values in two columns, without those that have no value.
func (p paint) facts(w io.Writer, rows [][]string) error {
	rows = slices.DeleteFunc(rows, func(r []string) bool { return r[1] == "" || r[1] == "-" || r[1] == "null" })
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		value := strict.OneLine(r[1])
		if strings.HasSuffix(r[0], "status") {
			value = p.status(value)
		}
		fmt.Fprintf(&b, "%s%s  %s\n", p.wrap("2", r[0]), strings.Repeat(" ", width-len(r[0])), value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// safe is [strict.OneLine] for a text that may have several lines.
func safe(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strict.OneLine(line)
	}
	return strings.Join(lines, "\n")
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
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, ok := w.(*os.File)
	return paint(ok && term.IsTerminal(int(f.Fd())) && a.getenv("NO_COLOR") == "")
}

func (p paint) wrap(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// status colours the states a person looks for.
func (p paint) status(text string) string {
	for prefix, code := range map[string]string{
		"failed": "31", "missed": "31", "complete": "32", "ran": "32",
		"running": "33", "queued": "33", "skipped": "33", "cancelled": "33",
	} {
		if strings.HasPrefix(text, prefix) {
			return p.wrap(code, text)
		}
	}
	return text
}
