// Package packaging holds the files by which an init system runs the service, and renders them for a place.
//
// The files in its folders are complete as they are: what Render returns for the zero Values is the file, byte for byte.
package packaging

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/xml"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names of what can be rendered.
const (
	System   = "system"   // systemd's system manager
	Template = "template" // the same, an instance for each workspace: marbles@.service
	User     = "user"     // systemd's user manager
	Launchd  = "launchd"  // a LaunchAgent of launchd
)

//go:embed systemd/marbles.service systemd/marbles@.service systemd/since/*.conf systemd/user/marbles.service launchd/com.foundry.marbles.plist etc/marbles.yaml
var files embed.FS

// What the files say where Render puts a value.
const (
	unitBinary  = "/usr/bin/marbles"
	unitConfig  = "/etc/marbles/marbles.yaml"
	agentBinary = "/usr/local/bin/marbles"
	agentHome   = "/Users/USERNAME"
)

// Values are what differs from place to place. All are absolute paths; "" is what the file says.
type Values struct {
	Binary string // of marbles
	Config string // the settings file; only the system units name one of their own
	Home   string // the user's home directory, which launchd cannot find out; the systemd units ignore it
	// Systemd is the version of systemd that will read the unit. The files suit 252; for newer ones what they do
	// better is put in, as the packages do by drop-ins (systemd/since). 0 is the file as it is.
	Systemd int
}

// Names are the names that Render takes.
func Names() []string { return []string{System, Template, User, Launchd} }

// Settings is a settings file in which every key is explained.
func Settings() []byte { return read("etc/marbles.yaml") }

// Render returns a unit or a property list with the values put in, escaped as its reader needs it. A value
// that is no absolute path, or that the reader cannot be given, is an error, and so is an unknown name.
func Render(name string, v Values) ([]byte, error) {
	if name != Launchd {
		v.Home = "" // not theirs to complain of
	}
	for _, p := range []struct{ what, path string }{{"binary", v.Binary}, {"settings file", v.Config}, {"home directory", v.Home}} {
		if err := check(p.path); err != nil {
			return nil, fmt.Errorf("cannot render %s: the %s %q %w", name, p.what, p.path, err)
		}
	}
	switch name {
	case System:
		v.Config = cmp.Or(v.Config, unitConfig)
		return unit("systemd/marbles.service", v, "")
	case Template:
		v.Config = cmp.Or(v.Config, unitConfig)
		return unit("systemd/marbles@.service", v, " --source %f")
	case User:
		return unit("systemd/user/marbles.service", v, "")
	case Launchd:
		return agent(read("launchd/com.foundry.marbles.plist"), v), nil
	}
	return nil, fmt.Errorf("cannot render %q: there are %s", name, strings.Join(Names(), ", "))
}

// check refuses what not every reader can be given: systemd takes no control characters in the path of a program,
// and XML 1.0 has no way to write most of them.
func check(p string) error {
	switch {
	case p == "":
		return nil
	case !path.IsAbs(p):
		return errors.New("is not an absolute path")
	case !utf8.ValidString(p):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || r == '\ufffe' || r == '\uffff' }):
		return errors.New("holds a control character")
	}
	return nil
}

// unit puts the command line into a unit's one ExecStart= line, and what newer versions of systemd know before [Install].
func unit(file string, v Values, rest string) ([]byte, error) {
	binary := cmp.Or(v.Binary, unitBinary)
	if strings.ContainsAny(binary, `"'\`) {
		return nil, fmt.Errorf("cannot render %s: systemd runs no program with a quote or backslash in its path: %q", file, binary)
	}
	line := "ExecStart=" + unitPath(binary) + " run"
	if v.Config != "" {
		line += " --config " + unitWord(v.Config)
	}
	newer := since(v.Systemd)
	var lines [][]byte
	for l := range bytes.SplitSeq(read(file), []byte("\n")) {
		switch {
		case bytes.HasPrefix(l, []byte("ExecStart=")):
			l = []byte(line + rest)
		case bytes.Equal(l, []byte("[Install]")):
			lines = append(lines, newer...)
		}
		lines = append(lines, l)
	}
	return bytes.Join(lines, []byte("\n")), nil
}

// since are the lines of the drop-ins that a version of systemd knows, as they would come after a unit's own.
func since(version int) (lines [][]byte) {
	entries, err := files.ReadDir("systemd/since")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries { // sorted by version: three digits each
		if n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".conf")); err != nil || n > version {
			continue
		}
		lines = append(lines, bytes.Split(read("systemd/since/"+e.Name()), []byte("\n"))...)
	}
	return lines
}

// unitWord writes a word of a command line (systemd.service(5), "Command lines"): % starts a specifier, $ a
// variable, and the rest is quoting.
func unitWord(s string) string {
	return unitPath(strings.ReplaceAll(s, "$", "$$"))
}

// unitPath writes the program of a command line, in which systemd replaces no variables.
func unitPath(s string) string {
	s = strings.ReplaceAll(s, "%", "%%")
	if !strings.ContainsAny(s, " \"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// agent puts the values into a property list, in one pass, so that no value is read as text to replace.
func agent(text []byte, v Values) []byte {
	const binary = "<string>" + agentBinary + "</string>"
	const run = "<string>run</string>"
	words := run
	if v.Config != "" {
		const indent = "\n\t\t"
		words += indent + "<string>--config</string>" + indent + "<string>" + escape(v.Config) + "</string>"
	}
	return []byte(strings.NewReplacer(
		binary, "<string>"+escape(cmp.Or(v.Binary, agentBinary))+"</string>",
		run, words,
		"<string>"+agentHome, "<string>"+escape(cmp.Or(v.Home, agentHome)),
	).Replace(string(text)))
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic(err) // a strings.Builder never fails
	}
	return b.String()
}

func read(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the embedded set is fixed when the program is built
	}
	return data
}
