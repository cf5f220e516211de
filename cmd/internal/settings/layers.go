package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"marbles/cmd/internal/strict"
)

// maxFile bounds the size of a settings file, in bytes.
const maxFile = 1 << 20

// environment makes a map of NAME=value texts; the last of equal names counts, empty values are left out.
func environment(texts []string) map[string]string {
	env := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		if delete(env, name); value != "" {
			env[name] = value
		}
	}
	return env
}

// layers gives viper the defaults, the file's values with the variables' over them, and the flags.
func (l *loader) layers(file string) {
	for _, k := range keys {
		l.v.SetDefault(k.name, k.fallback)
	}
	values := make(map[string]any)
	if file != "" {
		l.readFile(file, values)
	}
	for _, k := range keys {
		if text, ok := l.env[k.variable()]; ok {
			l.variable(k, text, values)
		}
	}
	if err := l.v.MergeConfigMap(values); err != nil {
		l.fail(file, err.Error())
	}
	if l.Flags == nil {
		return
	}
	for _, k := range keys {
		if l.Flags.Changed(k.flag) {
			l.flag(k)
		}
	}
}

// variable reads a variable's value.
func (l *loader) variable(k key, text string, values map[string]any) {
	if k.kind == paths {
		var list []string
		for _, item := range filepath.SplitList(text) {
			if _, err := k.parse(item); err != nil {
				l.fail(k.variable(), err.Error())
				continue
			}
			list = append(list, l.absolute(item, l.Cwd))
		}
		values[k.name] = list
		return
	}
	value, err := k.parse(text)
	if err != nil {
		l.fail(k.variable(), err.Error())
		return
	}
	if k.kind == path {
		value = l.absolute(text, l.Cwd)
	}
	values[k.name] = value
}

// flag reads a flag that was given. viper gets its parsed value: bound as a pflag, it would read the text by rules of
// its own.
func (l *loader) flag(k key) {
	if k.kind != paths {
		value, err := k.parse(l.Flags.Lookup(k.flag).Value.String())
		if err != nil {
			l.fail("--"+k.flag, err.Error())
			return
		}
		l.v.Set(k.name, value)
		return
	}
	// Not GetStringArray: it reads the texts back from CSV, which has no list of one empty text.
	list, ok := l.Flags.Lookup(k.flag).Value.(pflag.SliceValue)
	if !ok {
		l.fail("--"+k.flag, "it takes no list")
		return
	}
	texts := list.GetSlice()
	for _, text := range texts {
		if _, err := k.parse(text); err != nil {
			l.fail("--"+k.flag, err.Error())
		}
	}
	l.v.Set(k.name, texts)
}

// file finds the settings file; "" for none. One that is named must exist, that of systemd's ConfigurationDirectory=
// and the user's own need not.
func (l *loader) file() string {
	named, place := "", ""
	if l.Flags != nil && l.Flags.Changed(configFlag) {
		named, place = l.Flags.Lookup(configFlag).Value.String(), "--"+configFlag
		if named == "" {
			l.fail(place, "path is empty")
			return ""
		}
	} else if text, ok := l.env[configVariable]; ok {
		named, place = text, configVariable
	}
	if named != "" {
		return l.absolute(named, l.Cwd)
	}
	if dir := l.directory("CONFIGURATION_DIRECTORY"); dir != "" {
		if file := filepath.Join(dir, "marbles.yaml"); exists(file) {
			return file
		}
	}
	dir := l.env["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(dir) { // the XDG base directory specification: relative ones are to be ignored
		if l.Home == "" {
			return ""
		}
		dir = filepath.Join(l.Home, ".config")
	}
	if file := filepath.Join(dir, "marbles", "marbles.yaml"); exists(file) {
		return file
	}
	return ""
}

// exists is true of a file that cannot be looked at, too: reading it says why.
func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// readFile reads a settings file's values. Relative paths in it are relative to its folder.
func (l *loader) readFile(file string, values map[string]any) {
	data, err := l.readBytes(file)
	if err != nil {
		l.fail(file, err.Error())
		return
	}
	doc := strict.Parse(file, data)
	if doc.Root != nil && doc.Map(doc.Root, "a mapping of settings") {
		for k, v := range doc.Pairs(doc.Root) {
			key, ok := find(k.Value)
			if !ok {
				doc.Unknown(k, names())
				continue
			}
			if value, ok := l.node(doc, key, v); ok {
				values[key.name] = value
			}
		}
	}
	doc.Errors.Sort()
	l.errors = append(l.errors, doc.Errors...)
}

func (l *loader) readBytes(file string) ([]byte, error) {
	f, info, err := strict.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read settings: %w", reason(err))
	}
	defer f.Close()
	if l.Service {
		if err := strict.Trust(file, info, l.Euid); err != nil {
			return nil, err
		}
		dir := filepath.Dir(file)
		info, err := os.Stat(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot read settings: %w", err)
		}
		if err := strict.Trust(dir, info, l.Euid); err != nil {
			return nil, fmt.Errorf("its folder %w", err)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read settings: %w", reason(err))
	case len(data) > maxFile:
		return nil, fmt.Errorf("settings file is larger than %d KiB", maxFile>>10)
	}
	return data, nil
}

// reason leaves out the path, which the diagnostic names.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// node reads a key's value in a settings file.
func (l *loader) node(doc *strict.Document, k key, n *strict.Node) (any, bool) {
	switch k.kind {
	case count:
		return doc.Int(n, k.low, k.high)
	case paths:
		return l.nodeList(doc, k, n)
	case yesNo:
		return doc.Bool(n)
	case duration:
		if strict.KindOf(n) != strict.String {
			doc.Want(n, "a duration such as 30s or 5m")
			return nil, false
		}
	}
	read := doc.String
	if k.kind == size { // 0 is a number
		read = doc.Scalar
	}
	text, ok := read(n, "a text")
	if !ok {
		return nil, false
	}
	value, err := k.parse(text)
	if err != nil {
		doc.Near(n, text, k.choices, "%v", err)
		return nil, false
	}
	if k.kind == path {
		return l.absolute(text, filepath.Dir(doc.File)), true
	}
	return value, true
}

func (l *loader) nodeList(doc *strict.Document, k key, n *strict.Node) (any, bool) {
	if !doc.List(n, "a list of paths") {
		return nil, false
	}
	var list []string
	for _, item := range doc.Items(n) {
		text, ok := doc.String(item, "a path as a text")
		if !ok {
			continue
		}
		if _, err := k.parse(text); err != nil {
			doc.Errorf(item, "%v", err)
			continue
		}
		list = append(list, l.absolute(text, filepath.Dir(doc.File)))
	}
	return list, true
}

// absolute makes a path absolute, from a base; a leading ~/ is the home directory, as nothing else expands it in a
// file or variable.
func (l *loader) absolute(text, base string) string {
	if rest, ok := strings.CutPrefix(text, "~/"); ok && l.Home != "" {
		return filepath.Join(l.Home, rest)
	}
	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	if base == "" {
		l.fail(text, "path is relative, and the working directory cannot be found")
	}
	return filepath.Join(base, text)
}
