package catalog

// LoadText reads one definition file that is not on disk, as Load would read it in a workspace. name stands for it in
// errors.
func LoadText(name string, data []byte, workspace string, o Options) (*Catalog, error) {
	s := Source{Workspace: workspace}
	f := parseFile(name, data, 0o600, s, newLoading(o))
	c := &Catalog{Sources: []Source{s}, Files: []string{name}, Warnings: f.warnings}
	k := linker{Catalog: c, files: []*file{f}}
	k.link()
	if errors := append(f.errors, k.errors...); len(errors) > 0 {
		errors.Sort()
		return nil, errors
	}
	Diagnostics(c.Warnings).Sort()
	return c, nil
}
