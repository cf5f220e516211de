package catalog

import "errors"

// LocateAll resolves several --source values; none at all means the default source (see [Locate]). An empty one is an
// error: it comes from a variable that was not set, and must not mean the default.
func LocateAll(paths []string, cwd string) ([]Source, error) {
	if len(paths) == 0 {
		s, err := Locate("", cwd)
		if err != nil {
			return nil, err
		}
		return []Source{s}, nil
	}
	sources := make([]Source, 0, len(paths))
	for _, p := range paths {
		if p == "" {
			return nil, &sourceError{errors.New("cannot find source: the path is empty")}
		}
		s, err := Locate(p, cwd)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// LoadAll reads several sources; those of one workspace become one catalog. The errors of all of them come together
// as Diagnostics.
func LoadAll(sources []Source, o Options) ([]*Catalog, error) {
	var order []string
	byWorkspace := map[string][]Source{}
	for _, src := range sources {
		if byWorkspace[src.Workspace] == nil {
			order = append(order, src.Workspace)
		}
		byWorkspace[src.Workspace] = append(byWorkspace[src.Workspace], src)
	}
	var catalogs []*Catalog
	var all Diagnostics
	for _, w := range order {
		c, err := Load(byWorkspace[w], o)
		var diags Diagnostics
		switch {
		case errors.As(err, &diags):
			all = append(all, diags...)
		case err != nil:
			return nil, err
		default:
			catalogs = append(catalogs, c)
		}
	}
	if len(all) > 0 {
		return nil, all
	}
	return catalogs, nil
}
