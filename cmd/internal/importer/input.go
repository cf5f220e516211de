package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"marbles/cmd/internal/strict"
	"marbles/state"
)

// The kinds of input.
const (
	UserCrontab   = "crontab"
	SystemCrontab = "system-crontab"
	Timer         = "timer"
	Plist         = "plist"
)

// Kinds are all of them.
func Kinds() []string { return []string{UserCrontab, SystemCrontab, Timer, Plist} }

const (
	stdin      = "standard input"
	maxBytes   = 4 << 20
	maxPlist   = 1 << 20
	maxFiles   = 1000 // in a folder
	maxDropIns = 100
)

// Options are how to import.
type Options struct {
	From      string // a kind; "" to tell by the file
	Stdin     io.Reader
	Home      string // of the user of a crontab, or of a user's manager
	Workspace string // whose the definitions will be; "" where that is not known
	Now       time.Time
	Local     *time.Location
	// Account is the home directory of an account; false for none of that name.
	Account func(name string) (home string, ok bool)
	// Calendar asks systemd itself for the next instants of an OnCalendar= expression; nil where it is not there.
	Calendar func(expr string, from time.Time, n int) ([]time.Time, error)
}

// source is what was read of one file.
type source struct {
	name string
	data []byte
}

// zoneOf is a zone by its name, "" for the machine's.
func (r *reading) zoneOf(name string) *time.Location {
	if name != "" {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc
		}
	}
	return r.Local
}

// home is the home directory of an account, "" where it is not known.
func (r *reading) home(user string) string {
	if user == "" {
		return r.Home
	}
	home := r.account(user).home
	if home == "" && user == "root" {
		return "/root"
	}
	return home
}

// Read reads files (- for the standard input) into a plan. An error is about a file as a whole.
func Read(files []string, o Options) (*Plan, error) {
	r := &reading{Options: o, names: make(map[string]bool), taken: make(map[string]int), homes: make(map[string]account), units: make(map[string]source)}
	var all []source
	for _, name := range files {
		found, err := r.open(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for _, s := range all {
		if strings.HasSuffix(s.name, ".service") {
			r.units[filepath.Base(s.name)] = s
		}
	}
	p := &Plan{}
	for _, s := range all {
		p.Files = append(p.Files, s.name)
		if err := r.one(s); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(mapsKeys(r.units)) {
		r.note(Place{File: r.units[name].name}, Lost, "name its timer too", "no timer that was named starts %s", name)
	}
	p.Jobs, p.Notes = r.jobs, r.notes
	if err := r.finish(p); err != nil {
		return nil, err
	}
	sortNotes(p.Notes, p.Files)
	return p, nil
}

func mapsKeys(m map[string]source) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// one reads one file as what it is.
func (r *reading) one(s source) error {
	kind := r.From
	if kind == "" {
		kind = r.detect(s)
	}
	switch {
	case strings.HasSuffix(s.name, ".service"):
		return nil // read with its timer
	case kind == Timer:
		r.timer(s)
	case kind == Plist:
		if len(s.data) > maxPlist {
			return fmt.Errorf("cannot read %s: a property list of more than %d bytes is none of launchd's", s.name, maxPlist)
		}
		return r.plist(s)
	default:
		if n := bytes.Count(s.data[:min(len(s.data), 4096)], []byte{0}); n > 8 {
			return state.Hint(fmt.Errorf("cannot read %s: it is no text", s.name), "give --from plist if it is a binary property list")
		}
		r.crontab(s, kind == SystemCrontab)
	}
	return nil
}

// open reads a file, or the files of a folder that are of a kind.
func (r *reading) open(name string) ([]source, error) {
	if name == "-" {
		data, err := readAll(r.Stdin, stdin)
		return []source{{stdin, data}}, err
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return r.folder(name)
	}
	s, err := readFile(name)
	if err != nil {
		return nil, err
	}
	return []source{s}, nil
}

// cronFile matches the names that cron reads in a folder.
var cronFile = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (r *reading) folder(dir string) (all []source, err error) {
	d, err := strict.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read %w", err)
	}
	defer d.Close()
	entries, err := d.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("cannot read %s: it has more than %d entries; name the files", dir, maxFiles)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	units := slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), ".timer") || strings.HasSuffix(e.Name(), ".plist")
	})
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		ext := filepath.Ext(e.Name())
		fits := ext == ".timer" || ext == ".plist" || !units && cronFile.MatchString(e.Name())
		if !fits || e.IsDir() {
			if !e.IsDir() && ext != ".service" && e.Name() != ".placeholder" {
				r.note(Place{File: name}, Dropped, "name the file itself if it is one", "cron does not read a file of such a name, and it is neither a timer nor a plist")
			}
			continue
		}
		s, err := readFile(name)
		if err != nil {
			r.note(Place{File: name}, Lost, "name the file itself", "%s", brief(err.Error()))
			continue
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("cannot import %s: there is neither a crontab, a timer nor a plist in it", dir)
	}
	return all, nil
}

func readFile(name string) (source, error) {
	f, _, err := strict.Open(name)
	if err != nil {
		return source{}, fmt.Errorf("cannot read the file: %w", err)
	}
	defer f.Close()
	data, err := readAll(f, name)
	return source{name, data}, err
}

func readAll(from io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("cannot read %s: it has more than %d bytes", name, maxBytes)
	}
	return data, nil
}

// detect tells what a file is.
func (r *reading) detect(s source) string {
	head := bytes.TrimLeft(bytes.TrimPrefix(s.data, []byte("\ufeff")), " \t\r\n")
	switch {
	case strings.HasSuffix(s.name, ".timer") || bytes.Contains(s.data, []byte("\n[Timer]")) || bytes.HasPrefix(head, []byte("[Timer]")):
		return Timer
	case strings.HasSuffix(s.name, ".plist") || bytes.HasPrefix(head, []byte("bplist")) || bytes.HasPrefix(head, []byte("<?xml")) || bytes.HasPrefix(head, []byte("<plist")):
		return Plist
	case filepath.Base(filepath.Dir(s.name)) == "cron.d" || strings.HasSuffix(s.name, "/etc/crontab"):
		return SystemCrontab
	}
	if r.columns(string(s.data)) {
		r.note(Place{File: s.name}, Changed, "give --from crontab if it is none", "each line names an account after its times: it is read as a system crontab, with a user column")
		return SystemCrontab
	}
	return UserCrontab
}

// columns tells whether every job of a table names an account, and one of them root.
func (r *reading) columns(text string) bool {
	root := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if i > maxLines || line == "" || line[0] == '#' {
			continue
		}
		if _, _, ok := assignment(line); ok {
			continue
		}
		f := strings.Fields(line)
		at := 5
		if line[0] == '@' {
			at = 1
		}
		if len(f) <= at+1 {
			continue // too short for that form, and perhaps for either
		}
		if f[at] == "root" {
			root = true
		} else if !r.account(f[at]).known {
			return false
		}
	}
	return root
}

// unitFolders are where systemd looks, the first before the others.
func unitFolders(user bool, home string) []string {
	if user {
		return []string{filepath.Join(home, ".config/systemd/user"), "/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user"}
	}
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// userManager tells whether a unit is for a user's manager.
func (r *reading) userManager(u *unit) bool {
	return filepath.Base(filepath.Dir(u.path)) == "user"
}

// folders are where parts of a unit may lie: beside it, and where systemd looks if it lies there itself.
func (r *reading) folders(file string) []string {
	dir := filepath.Dir(file)
	if file == stdin {
		return nil
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	all := []string{dir}
	known := unitFolders(filepath.Base(dir) == "user", r.Home)
	if slices.Contains(known, dir) {
		for _, d := range known {
			if d != dir {
				all = append(all, d)
			}
		}
	}
	return all
}

// unitFile finds another unit's file: among those that were named, then beside one. An error is of one that is there.
func (r *reading) unitFile(beside, name string) (s source, ok bool, err error) {
	if s, ok := r.units[name]; ok {
		delete(r.units, name)
		return s, true, nil
	}
	for _, dir := range r.folders(beside) {
		s, err := readFile(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) { // it hides those of later folders, readable or not
			return s, err == nil, err
		}
	}
	return source{}, false, nil
}

// dropIns reads a unit's drop-ins: of all folders, by their names; one hides those of its name in later folders.
func (r *reading) dropIns(u *unit) {
	names := []string{u.name}
	if template, instance := u.template(); instance != "" {
		names = append(names, template)
	}
	found := map[string]string{}
	for _, name := range names {
		for _, dir := range r.folders(u.path) {
			sub := filepath.Join(dir, name+".d")
			d, err := strict.OpenDir(sub)
			if err != nil {
				continue
			}
			entries, _ := d.ReadDir(maxDropIns + 1)
			_ = d.Close()
			if len(entries) > maxDropIns {
				r.note(Place{File: sub}, Lost, "read them by hand", "there are more than %d drop-ins: the rest is not read", maxDropIns)
				entries = entries[:maxDropIns]
			}
			for _, e := range entries {
				if filepath.Ext(e.Name()) == ".conf" && found[e.Name()] == "" {
					found[e.Name()] = filepath.Join(sub, e.Name())
				}
			}
		}
	}
	var order []string
	for name := range found {
		order = append(order, name)
	}
	slices.Sort(order)
	for _, name := range order {
		s, err := readFile(found[name])
		if err != nil {
			r.note(Place{File: found[name]}, Lost, "look at the file", "the drop-in cannot be read: %s", brief(err.Error()))
			continue
		}
		r.parseUnit(u, s)
	}
}
