package importer

import (
	"path"
	"strings"
)

// step makes a step of one command of a service. files are shell texts that read its EnvironmentFile=.
func (r *reading) step(u *unit, e *entry, argv []string, files []string, user string) (s Step, ok bool) {
	for argv[0] != "" && strings.ContainsRune("@-:+!|", rune(argv[0][0])) {
		switch argv[0][0] {
		case '-':
			s.Continue = true
		case '@':
			r.note(e.Place, Lost, "write a wrapper", "@ in %s=: the program gets its own name as argv[0]", e.key)
			if len(argv) > 1 {
				argv = append(argv[:1:1], argv[2:]...)
			}
		case '+', '!':
			r.note(e.Place, Lost, "run the service as root, without `user`", "%c in %s=: full privileges for one command do not carry over", argv[0][0], e.key)
		case '|':
			r.note(e.Place, Lost, "call the shell in the command", "| in %s=: the user's shell is not used", e.key)
		}
		argv[0] = argv[0][1:]
	}
	if argv[0] == "" {
		r.note(e.Place, Lost, "correct the line", "%s= names no program", e.key)
		return s, false
	}
	s.Name = programName([]string{argv[0]})
	shell, plain := len(files) > 0, make([]string, 0, len(argv))
	var text strings.Builder
	split := false
	for i, w := range argv {
		w = r.specifiers(u, e, w, user)
		if i > 0 {
			text.WriteByte(' ')
		}
		if name, whole := strings.CutPrefix(w, "$"); whole && i > 0 && isName(name) {
			shell, split = true, true
			text.WriteString("${" + name + "-}") // split into words, as systemd does
			plain = append(plain, w)
			continue
		}
		quoted, raw, variables := expand(w)
		shell = shell || variables
		text.WriteString(quoted)
		plain = append(plain, raw)
	}
	if !shell {
		s.Argv = plain
		return s, true
	}
	lines := append([]string{}, files...)
	if split {
		lines = append(lines, "set -f")
	}
	s.Shell = strings.Join(append(lines, "exec "+text.String()), "\n")
	return s, true
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// expand writes a word for the shell, with ${NAME} as its variable, and as it is where it has none.
func expand(word string) (quoted, raw string, variables bool) {
	var q, plain strings.Builder
	literal := func(s string) {
		plain.WriteString(s)
		q.WriteString(shellQuote(s))
	}
	for word != "" {
		before, after, found := strings.Cut(word, "$")
		if before != "" {
			literal(before)
		}
		if !found {
			break
		}
		word = after
		if strings.HasPrefix(after, "$") {
			literal("$")
			word = after[1:]
			continue
		}
		if name, rest, ok := strings.Cut(after, "}"); ok && strings.HasPrefix(name, "{") && isName(name[1:]) {
			q.WriteString(`"${` + name[1:] + `-}"`)
			variables, word = true, rest
			continue
		}
		literal("$")
	}
	if quoted = q.String(); quoted == "" {
		quoted = "''"
	}
	return quoted, plain.String(), variables
}

func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// environmentFile is a line of shell that reads an EnvironmentFile=.
func environmentFile(value string) (string, bool) {
	name, optional := strings.CutPrefix(value, "-")
	if !path.IsAbs(name) || strings.ContainsAny(name, "*?[") {
		return "", false
	}
	q := shellQuote(name)
	if optional {
		return "set -a; if [ -r " + q + " ]; then . " + q + "; fi; set +a", true
	}
	return "set -a; . " + q + "; set +a", true
}
