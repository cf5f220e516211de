package importer

import (
	"path"
	"strings"
)

// commandName finds a word of a shell command that says what it does.
func commandName(command string) string {
	best := ""
	for part := range strings.FieldsFuncSeq(command, func(r rune) bool { return strings.ContainsRune("&|;(){}", r) }) {
		words := strings.Fields(part)
		for len(words) > 0 && skipped(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || tests(words[0]) {
			continue
		}
		if name := programName(words); name != "" {
			if best == "" || path.IsAbs(words[0]) && best == "echo" {
				best = name
			}
		}
	}
	if best == "" {
		if words := strings.Fields(command); len(words) > 0 {
			return programName(words)
		}
	}
	return best
}

// skipped are words before a program's name.
func skipped(word string) bool {
	switch path.Base(word) {
	case "env", "nice", "ionice", "exec", "sudo", "chronic", "time", "nohup", "then", "do", "!", "if":
		return true
	}
	name, _, ok := strings.Cut(word, "=")
	ok = ok || strings.Trim(word, "0123456789") == ""
	return strings.HasPrefix(word, "-") || ok && !strings.ContainsAny(name, "/$.")
}

// tests are programs that only look, or go somewhere.
func tests(word string) bool {
	switch path.Base(word) {
	case "cd", "test", "[", "[[", "command", "true", "false", "sleep", "set", ".", "source", "umask", "fi", "done", "else", "exit":
		return true
	}
	return strings.HasPrefix(word, ">") || strings.HasPrefix(word, "<") || strings.HasPrefix(word, "$(") || strings.HasPrefix(word, "2>")
}

// programName is a program's name, or that of the script it is to run.
func programName(words []string) string {
	name := path.Base(strings.Trim(words[0], `"'`))
	switch name {
	case "sh", "bash", "dash", "zsh", "perl", "python", "python3", "php", "ruby", "node", "run-parts", "flock", "timeout":
		for _, w := range words[1:] {
			if w = strings.Trim(w, `"'`); strings.Contains(w, "/") && !strings.HasPrefix(w, "-") && (name == "run-parts" || !strings.Contains(w, ".lock")) {
				name = path.Base(w)
				break
			}
		}
	}
	for _, ext := range []string{".sh", ".py", ".pl", ".php", ".rb", ".js", ".bash"} {
		name = strings.TrimSuffix(name, ext)
	}
	return strings.Trim(name, ".")
}
