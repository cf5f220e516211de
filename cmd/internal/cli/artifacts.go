package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/settings"
	"marbles/state"
)

// artifactLine is one artifact in JSON; its versions are oldest first.
type artifactLine struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Status   string            `json:"status"`
	Versions []artifactVersion `json:"versions"`
}

// artifactVersion is one version. N is what names it besides its id, from 1.
type artifactVersion struct {
	N         int     `json:"n"`
	ID        string  `json:"id"`
	Digest    string  `json:"digest"`
	Bytes     int64   `json:"bytes"`
	CreatedAt *string `json:"createdAt"`
	Run       string  `json:"run,omitempty"`
	Step      string  `json:"step,omitempty"`
	Project   string  `json:"project,omitempty"`
	Path      string  `json:"path,omitempty"`
}

func newArtifacts(a *app) *cobra.Command {
	var asJSON bool
	list := func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return a.listArtifacts(c, asJSON)
	}
	c := &cobra.Command{
		Use:   "artifacts",
		Short: "List, show and get the files that steps have left to be kept",
		Long:  "List, show and get the files that steps have left to be kept. Alone it lists them.",
		Args:  cobra.ArbitraryArgs, RunE: list, ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON document")
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List the artifacts", Args: noArgs("artifacts list"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error { return a.listArtifacts(c, asJSON) },
	}, &cobra.Command{
		Use: "show <name>", Short: "Show an artifact with its versions", Args: oneArg("artifacts show", "artifact's name"),
		ValidArgsFunction: a.completeArtifacts,
		RunE:              func(c *cobra.Command, args []string) error { return a.showArtifact(c, args[0], asJSON) },
	}, newGetArtifact(a))
	return c
}

func newGetArtifact(a *app) *cobra.Command {
	var file string
	var force bool
	c := &cobra.Command{
		Use:   "get <name>[@<version>]",
		Short: "Write an artifact's bytes to stdout, or to a file",
		Long: `Write an artifact's bytes to stdout, or with -o to a file.

The version is a number as "artifacts show" has it, or a part of a version's id from its beginning; without one it is the
newest. An existing file is overwritten with --force only, and only once all bytes are there.`,
		Args: oneArg("artifacts get", "artifact's name"), ValidArgsFunction: a.completeArtifacts,
		RunE: func(c *cobra.Command, args []string) error { return a.getArtifact(c, args[0], file, force) },
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write to this `file`")
	c.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return c
}

func (a *app) artifacts(c *cobra.Command) (*state.Artifacts, []state.Artifact, error) {
	s, err := a.settings(c, settings.Options{Reader: true})
	if err != nil {
		return nil, nil, err
	}
	if s.Artifacts == "" {
		return nil, nil, &settingsError{errors.New("cannot tell the artifact root: there is no home directory (give --artifacts)")}
	}
	store := state.OpenArtifacts(s.Artifacts)
	list, err := store.List()
	return store, list, err
}

func (a *app) listArtifacts(c *cobra.Command, asJSON bool) error {
	_, list, err := a.artifacts(c)
	if err != nil {
		return err
	}
	if asJSON {
		lines := []artifactLine{}
		for i := range list {
			lines = append(lines, newArtifactLine(&list[i]))
		}
		return printJSON(a.Stdout, map[string]any{"artifacts": lines})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "no artifacts")
		return err
	}
	rows := [][]string{{"NAME", "TYPE", "VERSIONS", "BYTES", "NEWEST", "RUN"}}
	for _, art := range list {
		row := []string{clean(art.Name, 60), clean(art.Type, 40), strconv.Itoa(len(art.Versions)), "-", "-", "-"}
		if n := len(art.Versions); n > 0 {
			v := art.Versions[n-1]
			row[3], row[4] = strconv.FormatInt(v.Bytes, 10), clock(v.Created)
			if v.Run != "" {
				row[5] = clean(v.Run, 40)
			}
		}
		rows = append(rows, row)
	}
	return a.paint(a.Stdout).table(a.Stdout, rows)
}

func newArtifactLine(art *state.Artifact) artifactLine {
	l := artifactLine{ID: art.ID, Name: art.Name, Type: art.Type, Status: art.Status, Versions: []artifactVersion{}}
	for i, v := range art.Versions {
		l.Versions = append(l.Versions, artifactVersion{
			N: i + 1, ID: v.ID, Digest: v.Digest, Bytes: v.Bytes, CreatedAt: instant(v.Created),
			Run: v.Run, Step: v.Step, Project: v.Project, Path: v.Path,
		})
	}
	return l
}

func (a *app) showArtifact(c *cobra.Command, name string, asJSON bool) error {
	_, list, err := a.artifacts(c)
	if err != nil {
		return err
	}
	art, err := findArtifact(list, name)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.Stdout, newArtifactLine(art))
	}
	p := a.paint(a.Stdout)
	if err := p.facts(a.Stdout, [][]string{
		{"artifact", clean(art.Name, 200)}, {"id", clean(art.ID, 60)}, {"type", clean(art.Type, 100)}, {"status", clean(art.Status, 20)},
	}); err != nil {
		return err
	}
	rows := [][]string{{"VERSION", "ID", "BYTES", "CREATED", "RUN", "STEP", "PATH"}}
	for i, v := range art.Versions {
		rows = append(rows, []string{
			strconv.Itoa(i + 1), clean(v.ID, 40), strconv.FormatInt(v.Bytes, 10), clock(v.Created),
			clean(v.Run, 40), clean(v.Step, 40), clean(v.Path, 100),
		})
	}
	return p.table(a.Stdout, rows)
}

// findArtifact finds an artifact by its name, or by its id.
func findArtifact(list []state.Artifact, name string) (*state.Artifact, error) {
	var found []*state.Artifact
	for i := range list {
		if list[i].ID == name {
			return &list[i], nil
		}
		if list[i].Name == name {
			found = append(found, &list[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, state.Hint(usage("there is no artifact %q", name), "marbles artifacts")
	case 1:
		return found[0], nil
	}
	return nil, state.Hint(usage("%d artifacts are called %q; give an id", len(found), name), "marbles artifacts --json")
}

// findVersion finds a version by its number, or by the beginning of its id.
func findVersion(art *state.Artifact, text string) (state.ArtifactVersion, error) {
	n := len(art.Versions)
	if n == 0 {
		return state.ArtifactVersion{}, usage("artifact %q has no version", art.Name)
	}
	if text == "" {
		return art.Versions[n-1], nil
	}
	if i, err := strconv.Atoi(text); err == nil && i >= 1 && i <= n {
		return art.Versions[i-1], nil
	}
	begins := func(v state.ArtifactVersion) bool { return strings.HasPrefix(v.ID, text) }
	i := slices.IndexFunc(art.Versions, begins)
	if i < 0 || slices.ContainsFunc(art.Versions[i+1:], begins) {
		return state.ArtifactVersion{}, state.Hint(usage("artifact %q has no one version %q", art.Name, text), "marbles artifacts show "+art.Name)
	}
	return art.Versions[i], nil
}

func (a *app) getArtifact(c *cobra.Command, text, file string, force bool) error {
	store, list, err := a.artifacts(c)
	if err != nil {
		return err
	}
	name, version, _ := strings.Cut(text, "@")
	art, err := findArtifact(list, name)
	if err != nil {
		return err
	}
	v, err := findVersion(art, version)
	if err != nil {
		return err
	}
	if file != "" && !filepath.IsAbs(file) {
		file = filepath.Join(a.Cwd, file)
	}
	if file != "" && !force {
		if _, err := os.Lstat(file); err == nil {
			return state.Hint(usage("cannot write %s: it exists", file), "--force overwrites it")
		}
	}
	r, err := store.Read(v.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	if file == "" {
		_, err := io.Copy(a.Stdout, r)
		return err
	}
	return state.SaveStream(file, force, bufio.NewReader(r))
}

// completeArtifacts completes names of artifacts.
func (a *app) completeArtifacts(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		_, list, _ := a.artifacts(c)
		for _, art := range list {
			names = append(names, art.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
