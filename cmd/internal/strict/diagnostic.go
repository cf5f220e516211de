package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Position is where something was written. File is valid UTF-8 (see [UTF8]). Line and Column count from 1, columns in characters; both are 0 where
// the whole file (or flag, or variable) is meant.
type Position struct {
	File         string
	Line, Column int
}

// String is "file:line:column", or the file alone, safe for a terminal.
func (p Position) String() string {
	file := OneLine(p.File)
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
}

// Whole is a diagnostic about a whole file (or flag, or variable), of any bytes.
func Whole(file, message string) Diagnostic {
	return Diagnostic{Position: Position{File: UTF8(file)}, Message: UTF8(message)}
}

// Diagnostic is one error or warning. Its texts are valid UTF-8, and may hold control characters.
type Diagnostic struct {
	Position
	Path    string // dotted, as schedules[0].every; a name with a dot in it is quoted
	Message string
	Nearest string // the nearest valid name, for "did you mean"
}

// String is "file:line:column: path: message (did you mean "x"?)", without the parts that are not known, as one line
// that is safe for a terminal.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.Position.String())
		b.WriteString(": ")
	}
	if d.Path != "" {
		b.WriteString(d.Path)
		b.WriteString(": ")
	}
	b.WriteString(d.Message)
	if d.Nearest != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", d.Nearest)
	}
	return OneLine(b.String())
}

// Diagnostics are several, as one error: one line each.
type Diagnostics []Diagnostic

func (d Diagnostics) Error() string {
	lines := make([]string, len(d))
	for i := range d {
		lines[i] = d[i].String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders them by file, line and column; what stands at one place keeps its order.
func (d Diagnostics) Sort() {
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Join appends a name to a dotted path, quoting it where it would not read as one part.
func Join(path, name string) string {
	plain := name != ""
	for _, r := range name {
		if !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			plain = false
			break
		}
	}
	if !plain {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index appends an index to a dotted path.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
