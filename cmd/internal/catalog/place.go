package catalog

import (
	"path/filepath"
	"strings"
	"unicode"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/state"
)

var (
	worktreeKeys = []string{"base", "branch"}
	artifactKeys = []string{"name", "type", "path"}
)

// plainBytes is the type of an artifact that names none.
const plainBytes = "application/octet-stream"

// worktree reads in what git worktree a step runs: true, or what it is made from and how its branch is called.
func (d *decoder) worktree(n *strict.Node) *runner.Worktree {
	w := new(runner.Worktree)
	if strict.KindOf(n) == strict.Bool {
		if yes, _ := d.Bool(n); !yes {
			return nil
		}
		return w
	}
	if !d.Map(n, "true, or a mapping such as {base: main, branch: try}") {
		return w
	}
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "base":
			w.Base = d.text(v, "a branch, tag or commit as a text")
			if strings.HasPrefix(w.Base, "-") || strings.ContainsFunc(w.Base, blank) {
				d.Errorf(v, "%q is no name that git takes", w.Base)
			}
		case "branch":
			if w.Branch = d.text(v, "a branch's name as a text"); w.Branch != "" && !isBranch(w.Branch) {
				d.Errorf(v, "%q is no branch's name that git takes", w.Branch)
			}
		default:
			d.Unknown(k, worktreeKeys)
		}
	}
	return w
}

func blank(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// isBranch tells whether git would take a name (git check-ref-format --branch).
func isBranch(name string) bool {
	if name == "HEAD" || name == "@" || strings.HasPrefix(name, "-") || strings.HasSuffix(name, ".") ||
		strings.ContainsAny(name, " ~^:?*[\\") || strings.ContainsFunc(name, unicode.IsControl) ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// inWorktree reads a directory of the step's worktree.
func (d *decoder) inWorktree(n *strict.Node) string {
	text, ok := d.String(n, "a directory as a text")
	switch {
	case !ok:
	case text == "":
		d.Errorf(n, "workdir is empty; . is the worktree")
	case strings.Contains(text, "\x00"):
		d.Errorf(n, "workdir contains a NUL")
	case !filepath.IsLocal(text):
		d.Errorf(n, "workdir %q does not lie in the worktree; it is relative to it", text)
	default:
		return filepath.Clean(text)
	}
	return ""
}

// artifacts reads the files that a step makes and that are kept.
func (d *decoder) artifacts(n *strict.Node) (list []runner.Artifact) {
	if !d.List(n, "a list of artifacts such as {name: report, type: text/html, path: report.html}") {
		return nil
	}
	lines := make(map[string]int)
	for _, item := range d.Items(n) {
		if !d.Map(item, "an artifact: a mapping with name and path") {
			continue
		}
		a := runner.Artifact{Type: plainBytes}
		var name, path *strict.Node
		for k, v := range d.Pairs(item) {
			switch k.Value {
			case "name":
				name = v
				a.Name = d.artifactName(v)
			case "type":
				if text, ok := d.String(v, "a media type such as text/html as a text"); ok && !isMediaType(text) {
					d.Errorf(v, "%q is no media type such as text/html", text)
				} else if ok {
					a.Type = text
				}
			case "path":
				path = v
				a.Path = d.artifactPath(v)
			default:
				d.Unknown(k, artifactKeys)
			}
		}
		if name == nil {
			d.Errorf(item, "give name, what the artifact is called")
		} else if line, ok := lines[a.Name]; ok && a.Name != "" {
			d.Errorf(name, "artifact %q is there already, in line %d", a.Name, line)
		} else {
			lines[a.Name] = name.Line
		}
		if path == nil {
			d.Errorf(item, "give path, the file that is kept")
		}
		list = append(list, a)
	}
	return list
}

func (d *decoder) artifactName(n *strict.Node) string {
	name, ok := d.String(n, "a text")
	if !ok {
		return ""
	}
	switch err := state.PlainName("artifact", name); {
	case err != nil:
		d.Errorf(n, "an artifact must be named by a plain file name, not %q", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		d.Errorf(n, "artifact name %q contains a control character", name)
	case strings.HasPrefix(name, "-"):
		d.Errorf(n, "artifact name %q begins with a dash", name)
	case strings.Contains(name, "@"):
		d.Errorf(n, "artifact name %q contains an @, behind which a version is named", name)
	case len(name) > maxKey:
		d.Errorf(n, "artifact name has %d bytes, at most %d are allowed", len(name), maxKey)
	}
	return name
}

// artifactPath reads a file's name, relative to where the step runs.
func (d *decoder) artifactPath(n *strict.Node) string {
	text, ok := d.String(n, "a file's name as a text")
	switch {
	case !ok:
		return ""
	case strings.TrimSpace(text) == "":
		d.Errorf(n, "path is empty")
	case strings.Contains(text, "\x00"):
		d.Errorf(n, "path contains a NUL")
	case text == "~" || strings.HasPrefix(text, "~/"):
		d.Errorf(n, "path is no shell text: ~ is not expanded; write the whole path")
	case strings.HasSuffix(text, "/") || filepath.Clean(text) == ".":
		d.Errorf(n, "path %q is a directory, and a file is kept", text)
	default:
		return filepath.Clean(text)
	}
	return ""
}

// isMediaType tells whether a text is type/subtype, with parameters or not (RFC 6838, 4.2).
func isMediaType(text string) bool {
	kind, _, _ := strings.Cut(text, ";")
	top, sub, ok := strings.Cut(strings.TrimSpace(kind), "/")
	word := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$&-^_.+") == ""
	}
	return ok && word(top) && word(sub) && !strings.ContainsFunc(text, unicode.IsControl)
}
