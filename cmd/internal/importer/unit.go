package importer

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// entry is one assignment of a unit.
type entry struct {
	Place
	section, key, value string
	used                bool
}

// unit is a unit file with its drop-ins, in the order in which they count.
type unit struct {
	name    string // foo.timer, foo@bar.service
	path    string // of its own file
	entries []*entry
}

// parseUnit reads the lines of one file.
func (r *reading) parseUnit(u *unit, s source) {
	section := ""
	lines := strings.Split(strings.TrimPrefix(string(s.data), "\ufeff"), "\n")
	for i := 0; i < len(lines) && i < maxLines; i++ {
		at := Place{s.name, i + 1}
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		line, i = continued(line, lines, i)
		switch key, value, ok := strings.Cut(line, "="); {
		case len(line) > maxLine:
			r.note(at, Lost, "shorten it", "the line has more than %d bytes: %s", maxLine, brief(line))
		case !utf8.ValidString(line) || strings.Contains(line, "\x00"):
			r.note(at, Lost, "write it in UTF-8", "the line is no UTF-8 text: %s", brief(line))
		case line[0] == '[' && line[len(line)-1] == ']':
			section = line[1 : len(line)-1]
		case !ok || section == "":
			r.note(at, Lost, "correct the line", "the line is no assignment in a section: %s", brief(line))
		default:
			u.entries = append(u.entries, &entry{Place: at, section: section, key: strings.TrimSpace(key), value: strings.TrimSpace(value)})
		}
	}
}

// continued joins what belongs to a line: it goes on where it ends with a backslash; comments between are no part of it.
func continued(line string, lines []string, i int) (whole string, last int) {
	var b strings.Builder
	for goesOn := true; goesOn; {
		line, goesOn = strings.CutSuffix(line, `\`)
		if b.Len() <= maxLine { // more is refused anyway
			b.WriteString(line)
		}
		for goesOn = goesOn && i+1 < len(lines); goesOn; {
			i++
			line = strings.TrimSpace(lines[i])
			if line == "" || line[0] != '#' && line[0] != ';' {
				b.WriteByte(' ')
				break
			}
			goesOn = i+1 < len(lines)
		}
	}
	return b.String(), i
}

// find are the assignments to a key that count: an empty one takes back those before it.
func (u *unit) find(section, key string) (all []*entry) {
	for _, e := range u.entries {
		if e.section != section || e.key != key {
			continue
		}
		e.used = true
		if e.value == "" {
			all = nil
			continue
		}
		all = append(all, e)
	}
	return all
}

// last is the assignment to a key that counts; nil for none.
func (u *unit) last(section, key string) *entry {
	all := u.find(section, key)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (u *unit) text(section, key string) string {
	if e := u.last(section, key); e != nil {
		return e.value
	}
	return ""
}

// yes reads a boolean.
func (u *unit) yes(section, key string) bool {
	switch strings.ToLower(u.text(section, key)) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

// template is the name of a unit's template, and its instance; "" where it has none.
func (u *unit) template() (template, instance string) {
	prefix, rest, ok := strings.Cut(u.name, "@")
	if !ok {
		return "", ""
	}
	suffix := filepath.Ext(rest)
	return prefix + "@" + suffix, strings.TrimSuffix(rest, suffix)
}

// specifiers expands a % of a unit. What only the machine or the unit's start knows stays, and is named.
func (r *reading) specifiers(u *unit, e *entry, text string, user string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	base := strings.TrimSuffix(u.name, filepath.Ext(u.name))
	prefix, instance, _ := strings.Cut(base, "@")
	var b strings.Builder
	said := false
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteString(u.name)
		case 'N':
			b.WriteString(base)
		case 'p':
			b.WriteString(prefix)
		case 'P':
			b.WriteString(unescape(prefix))
		case 'i':
			b.WriteString(instance)
		case 'I':
			b.WriteString(unescape(instance))
		case 'f':
			b.WriteString("/" + unescape(instance))
		case 't':
			b.WriteString("/run")
		case 'S':
			b.WriteString("/var/lib")
		case 'C':
			b.WriteString("/var/cache")
		case 'L':
			b.WriteString("/var/log")
		case 'E':
			b.WriteString("/etc")
		case 'T':
			b.WriteString("/tmp")
		case 'V':
			b.WriteString("/var/tmp")
		case 'u':
			b.WriteString(user)
		case 'h':
			b.WriteString(r.home(user))
		default:
			if b.WriteString(text[i-1 : i+1]); said {
				continue
			}
			said = true
			r.note(e.Place, Lost, "write what it stands for", "the specifier %%%c in %s=%s is not known here, and stays as it is", text[i], e.key, brief(e.value))
		}
	}
	return b.String()
}

// unescape undoes the escaping of unit names.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '-':
			b.WriteByte('/')
		case strings.HasPrefix(text[i:], `\x`) && i+3 < len(text):
			var c byte
			if _, err := fmt.Sscanf(text[i+2:i+4], "%02x", &c); err != nil {
				b.WriteByte(text[i])
				continue
			}
			b.WriteByte(c)
			i += 3
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// words splits a value as systemd does: at blanks, with quotes and C's escapes.
func words(text string) (all []string, err error) {
	var b strings.Builder
	inside, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			n := escaped(&b, text[i+1:])
			i += n
			inside = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case (c == '"' || c == '\'') && !inside:
			quote, inside = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inside {
				all = append(all, b.String())
				b.Reset()
				inside = false
			}
		default:
			b.WriteByte(c)
			inside = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed in %s", brief(text))
	}
	if inside {
		all = append(all, b.String())
	}
	return all, nil
}

// escaped writes what an escape stands for, and is how long it is without its backslash.
func escaped(b *strings.Builder, text string) int {
	if i := strings.IndexByte(`abfnrtvs\"'`, text[0]); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v \\\"'"[i])
		return 1
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	if digits > 0 && len(text) > digits {
		var v rune
		if _, err := fmt.Sscanf(text[1:1+digits], fmt.Sprintf("%%0%dx", digits), &v); err == nil && v > 0 {
			if digits == 2 {
				b.WriteByte(byte(v))
			} else {
				b.WriteRune(v)
			}
			return 1 + digits
		}
	}
	b.WriteByte('\\')
	b.WriteByte(text[0])
	return 1
}
