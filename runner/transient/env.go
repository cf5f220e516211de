package transient

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// EnvText writes an environment ("NAME=value" each) as a file that EnvironmentFile= reads back exactly. A variable it
// cannot carry is an error that names it, and never tells its value.
//
// Within double quotes systemd takes everything as it is but a backslash, which escapes the four characters that a
// shell needs escaped there (src/basic/env-file.c). What it drops, with a warning nobody sees, is refused here: names
// that a shell does not know, control characters other than tab and newline, and what is not Unicode text.
func EnvText(env []string) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !variableName(name) {
			return nil, fmt.Errorf("cannot write variable %q: a unit's variable is named by letters, digits and _, without a digit in front", name)
		}
		if len(e) >= maxVariable {
			return nil, fmt.Errorf("cannot write variable %s: it is longer than a program can be given", name)
		}
		if err := carries(value); err != nil {
			return nil, fmt.Errorf("cannot write variable %s: %w", name, err)
		}
		b.WriteString(name)
		b.WriteString(`="`)
		for i := range len(value) {
			if strings.IndexByte("\"\\`$", value[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(value[i])
		}
		b.WriteString("\"\n")
	}
	return b.Bytes(), nil
}

func variableName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// maxVariable is what Linux lets one string of an environment have, its end included.
const maxVariable = 128 << 10

func carries(value string) error {
	if !utf8.ValidString(value) {
		return errors.New("it is not valid UTF-8, which a unit's environment must be")
	}
	for _, r := range value {
		switch {
		case r < ' ' && r != '\t' && r != '\n' || r == 0x7f:
			return fmt.Errorf("it has the control character %U, which a unit's environment cannot have", r)
		case r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe:
			return fmt.Errorf("it has the noncharacter %U, which a unit's environment cannot have", r)
		}
	}
	return nil
}
