package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"marbles/cmd/internal/strict"
)

// roots decides the state and the artifact root (design §5). systemd's $STATE_DIRECTORY stands between the variable
// and the file. Without a home directory there may be neither root, which only what needs one has to mind.
func (l *loader) roots(s *Settings) {
	given := l.Flags != nil && l.Flags.Changed("state") || l.env["MARBLES_STATE"] != ""
	s.State = l.v.GetString("state")
	directory := l.directory("STATE_DIRECTORY")
	switch {
	case given:
		s.State = l.absolute(s.State, l.Cwd)
	case directory != "":
		s.State = directory
	case s.State != "":
	case s.File == SystemFile: // what a person does by the packaged service's settings is about that one's state
		s.State, directory = SystemState, SystemState
	case l.Home != "":
		s.State = l.defaultState()
	}
	switch s.Artifacts = l.v.GetString("artifacts"); {
	case s.Artifacts != "":
		s.Artifacts = l.absolute(s.Artifacts, l.Cwd)
	case !given && directory != "":
		s.Artifacts = filepath.Join(s.State, "artifacts")
	case s.State != "":
		s.Artifacts = filepath.Join(filepath.Dir(s.State), "artifacts")
	}
}

// directory is the first entry of a variable by which systemd names directories that it has made, for the service only.
func (l *loader) directory(variable string) string {
	if !l.Service {
		return ""
	}
	for _, dir := range filepath.SplitList(l.env[variable]) {
		if filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// defaultState is the user's own state root, or for readers the system service's, where the user has none and may
// read that one.
func (l *loader) defaultState() string {
	own := filepath.Join(l.Home, ".foundry", "marbles")
	if !l.Reader {
		return own
	}
	if _, err := os.Stat(own); !errors.Is(err, fs.ErrNotExist) {
		return own
	}
	system := l.SystemState
	if system == "" {
		system = SystemState
	}
	f, err := strict.OpenDir(system)
	if err != nil {
		return own
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); err != nil {
		return own
	}
	return system
}
