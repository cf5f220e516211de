package catalog

import "errors"

// LoadAll reads several sources, as paths relative to cwd; those of one workspace become one catalog. No path at all
// means the default source (see [Locate]). The errors of all of them come together as Diagnostics.
func LoadAll(paths []string, cwd string, o Options) ([]*Catalog, error) {
	if len(paths) == 0 {
		paths = []string{""}
	}
	var order []string
	byWorkspace := map[string][]Source{}
	for _, p := range paths {
		src, err := Locate(p, cwd)
		if err != nil {
			return nil, err
		}
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
