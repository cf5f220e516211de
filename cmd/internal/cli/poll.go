package cli

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/monitor"
	"marbles/state"
)

// maxPolled is how many lines of a change are shown.
const maxPolled = 50

// polled is `poll --json`.
type polled struct {
	Key      string         `json:"key"`
	Kind     string         `json:"kind"`
	Changed  bool           `json:"changed"`
	First    bool           `json:"first"` // nothing was committed before
	Summary  string         `json:"summary"`
	Degraded []string       `json:"degraded"`
	Change   jsontext.Value `json:"change"`         // as a handler would get it; null where nothing changed
	Input    jsontext.Value `json:"input,omitzero"` // of the launch that start asks for, where a program makes it
	TookMS   int64          `json:"took_ms"`
}

func newPoll(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "poll <key>",
		Short: "Look once at what a monitor watches, and show what it would report",
		Long: `Look once at what a monitor watches, and show what it would report.

Everything is read afresh and compared with what was committed. Nothing is changed: no lock, no record, no
handler. A look that fails ends with exit code 1.`,
		Args:              oneArg("poll", "key"),
		ValidArgsFunction: a.completeDefined(monitorNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.poll(c, args[0], asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) poll(c *cobra.Command, key string, asJSON bool) error {
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	// As for running: a look opens files and sends secrets that the definitions name.
	catalogs, err := a.catalogs(s, true)
	if err != nil {
		return err
	}
	cat, m, err := findMonitor(catalogs, key)
	if err != nil {
		return err
	}
	ws, err := root.Workspace(cat.Sources[0].Workspace)
	if err != nil {
		return err
	}
	rec, err := ws.Monitor(key)
	if err != nil {
		return state.Hint(err, "move the file aside to begin with a new baseline")
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	began := time.Now()
	obs, err := m.Source.Look(ctx,
		monitor.Committed{Load: func() (*state.MonitorRecord, error) { return rec, nil }},
		monitor.LookOptions{Timeout: m.Timeout, Log: a.log(s).With("key", key), Fresh: true, Unconditional: true})
	if err != nil {
		return err
	}
	p := polled{
		Key: key, Kind: m.Source.Kind(), Changed: obs.Changed, First: obs.First, Summary: obs.Summary,
		Degraded: append([]string{}, obs.Degraded...), Change: jsontext.Value("null"),
		TookMS: time.Since(began).Milliseconds(),
	}
	if obs.Changed && obs.Change != nil {
		p.Change = obs.Change
	}
	if p.Change != nil && obs.Changed && m.InputProgram != nil {
		if p.Input, err = service.InputOf(ctx, m.InputProgram, obs.Change); err != nil {
			return fmt.Errorf("cannot make the input of %q: %w", m.Start, err)
		}
	}
	if cert := service.CertLine(obs.CertExpires, time.Now(), m.CertDays); cert != "" {
		p.Degraded = append(p.Degraded, cert)
	}
	if asJSON {
		return printJSON(a.Stdout, p)
	}
	fmt.Fprintf(a.Stdout, "%s: %s\n", clean(key, 200), clean(p.headline(), 300))
	if err := p.printChange(a, obs); err != nil {
		return err
	}
	if p.Input != nil {
		fmt.Fprintf(a.Stdout, "input of %s: %s\n", clean(m.Start, 200), clean(string(p.Input), 500))
	}
	for _, line := range p.Degraded {
		fmt.Fprintf(a.Stdout, "degraded: %s\n", clean(line, 300))
	}
	if rec != nil && rec.Pending != nil {
		fmt.Fprintf(a.Stdout, "pending: a launch of %s, which a tick starts before it looks again\n", clean(rec.Pending.Workflow, 200))
	} else if obs.First && !obs.Changed && p.Kind == monitor.KindFiles {
		fmt.Fprintf(a.Stdout, "hint: nothing matches %s%s\n", clean(m.Source.String(), 200), directoryHint(cat, m))
	} else if obs.First && m.Silent {
		fmt.Fprintln(a.Stdout, "baseline: silent, so a tick records this and runs nothing")
	}
	return nil
}

// directoryHint says how all below a directory is watched, where that is what a glob names.
func directoryHint(cat *catalog.Catalog, m *catalog.Monitor) string {
	glob := m.Source.String()
	info, err := os.Stat(filepath.Join(cat.Sources[0].Workspace, glob))
	if err != nil || !info.IsDir() {
		return ""
	}
	return "; it is a directory: " + clean(glob, 200) + "/**"
}

// findMonitor finds a monitor by its key.
func findMonitor(catalogs []*catalog.Catalog, key string) (*catalog.Catalog, *catalog.Monitor, error) {
	for _, c := range catalogs {
		if m := c.Monitor(key); m != nil {
			return c, m, nil
		}
	}
	for _, c := range catalogs {
		if c.Schedule(key) != nil {
			return nil, nil, usage("%q is a schedule; poll looks at what a monitor watches", key)
		}
	}
	return nil, nil, unknownName(catalogs, key)
}

// headline is the summary, and what it is compared with where the summary does not say that.
func (p polled) headline() string {
	text := p.Summary
	if p.Kind == monitor.KindHTTP {
		if p.Changed {
			text += ", changed"
		} else {
			text += ", no change"
		}
	}
	if p.First {
		text += " (the first look)"
	}
	return text
}

func (p polled) printChange(a *app, obs *monitor.Observation) error {
	var lines []string
	var err error
	switch {
	case p.Kind == monitor.KindFiles && p.Changed:
		lines, err = fileLines(obs.Change)
	case p.Kind == monitor.KindHTTP && p.Changed:
		lines, err = bodyLines(obs.Change)
	case len(obs.Selection) > 0:
		lines = []string{"selection: " + clean(compact(jsontext.Value(obs.Selection)), 300)}
	}
	if err != nil {
		return err
	}
	for _, line := range lines {
		fmt.Fprintln(a.Stdout, line)
	}
	return nil
}

// fileLines are the paths of a change of files.
func fileLines(change []byte) ([]string, error) {
	var c monitor.FilesChange
	if err := json.Unmarshal(change, &c); err != nil {
		return nil, fmt.Errorf("cannot read the change: %w", err)
	}
	var lines []string
	left := maxPolled
	add := func(what string, files []monitor.File) {
		for _, f := range files[:min(left, len(files))] {
			lines = append(lines, fmt.Sprintf("  %-8s  %s", what, clean(f.Path, 300)))
		}
		left -= min(left, len(files))
	}
	add("added", c.Added)
	add("modified", c.Modified)
	add("removed", c.Removed)
	return andMore(lines, len(c.Added)+len(c.Modified)+len(c.Removed)-len(lines)), nil
}

func andMore(lines []string, more int) []string {
	if more > 0 {
		lines = append(lines, fmt.Sprintf("  … and %d more", more))
	}
	return lines
}

// body is what `poll` shows of a change of a URL.
type body struct {
	Current           jsontext.Value `json:"current"`
	CurrentBase64     bool           `json:"currentBase64"`
	Previous          jsontext.Value `json:"previous"`
	PreviousBase64    bool           `json:"previousBase64"`
	Selection         jsontext.Value `json:"selection"`
	PreviousSelection jsontext.Value `json:"previousSelection"`
}

// bodyLines shows what went and what came: of the selection where there is one, else of the body.
func bodyLines(change []byte) ([]string, error) {
	var b body
	if err := json.Unmarshal(change, &b); err != nil {
		return nil, fmt.Errorf("cannot read the change: %w", err)
	}
	was, is := valueLines(b.Previous, b.PreviousBase64), valueLines(b.Current, b.CurrentBase64)
	if b.Selection != nil {
		was, is = valueLines(b.PreviousSelection, false), valueLines(b.Selection, false)
	}
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	var lines []string
	add := func(mark string, list []string) {
		shown := list[:min(len(list), maxPolled/2)]
		for _, line := range shown {
			lines = append(lines, "  "+mark+" "+clean(line, 200))
		}
		if more := len(list) - len(shown); more > 0 {
			lines = append(lines, fmt.Sprintf("  %s … and %d more", mark, more))
		}
	}
	add("-", was)
	add("+", is)
	return lines, nil
}

// valueLines are the lines of a text, or of a JSON value as it is printed; none for no value.
func valueLines(v jsontext.Value, inBase64 bool) []string {
	if v == nil {
		return nil
	}
	if v.Kind() != '"' {
		v = v.Clone()
		_ = v.Indent(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.WithIndent("  ")) // else it stays as it is
		return strings.Split(string(v), "\n")
	}
	text := textOf(v)
	if inBase64 {
		data, _ := base64.StdEncoding.DecodeString(text)
		return []string{fmt.Sprintf("%s that are no text", count(len(data), "byte"))}
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// textOf is the text of a JSON string.
func textOf(v jsontext.Value) string {
	text, _ := jsontext.AppendUnquote(nil, v)
	return string(text)
}

// monitorNames offers the keys of monitors.
func monitorNames(catalogs []*catalog.Catalog, offer func(name, what string)) {
	for _, cat := range catalogs {
		for _, m := range cat.Monitors {
			offer(m.Key, m.Source.String())
		}
	}
}
