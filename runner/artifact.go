package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"marbles/state"
)

// keepArtifacts adds the files that the step was to make in dir to the artifact store.
func (s *step) keepArtifacts(ctx context.Context, dir string) error {
	if len(s.Artifacts) == 0 {
		return nil
	}
	store := s.r.w.o.Artifacts
	if store == nil {
		return fmt.Errorf("cannot keep artifact %s: there is no artifact store", s.Artifacts[0].Name)
	}
	for i := range s.Artifacts {
		v, err := s.keepArtifact(ctx, store, dir, &s.Artifacts[i])
		if err != nil {
			return err
		}
		s.r.journal.line(s.label(), fmt.Sprintf("artifact %s kept: version %s, %d bytes", s.Artifacts[i].Name, v.ID, v.Bytes))
	}
	return nil
}

func (s *step) keepArtifact(ctx context.Context, store ArtifactStore, dir string, a *Artifact) (v state.ArtifactVersion, err error) {
	f, err := s.openArtifact(dir, a.Path)
	if err != nil {
		return v, fmt.Errorf("cannot keep artifact %s: %s: %w", a.Name, a.Path, err)
	}
	defer f.Close()
	return store.Add(ctx, state.NewArtifact{
		Name: a.Name, Type: a.Type, File: a.Path, Content: f,
		Version: state.ArtifactVersion{
			Run: s.r.id, Step: s.label(), Workspace: s.r.ws.ID(), Project: s.r.ws.Project(), Path: a.Path,
		},
	})
}

// openArtifact opens a file that a step has made. No link is followed out of the step's directory, and none at all at the
// end of an absolute path elsewhere. It waits for nobody: the step may have put anything there.
func (s *step) openArtifact(dir, path string) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	inside := path
	if filepath.IsAbs(path) {
		inside = ""
		if rel, err := filepath.Rel(dir, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			inside = rel
		}
	}
	var f *os.File
	var err error
	if inside != "" {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			f, err = root.OpenFile(inside, flags, 0)
			_ = root.Close()
		}
	} else {
		f, err = os.OpenFile(path, flags|unix.O_NOFOLLOW, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("the step did not make it")
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symbolic link")
	case err != nil:
		return nil, bare(err)
	}
	if err := s.r.who.mayKeep(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// mayKeep refuses an open file that is none, or that a step of another user could not have made: the service might be able
// to read what that one is not.
func (id *identity) mayKeep(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return bare(err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if id != nil && (!ok || st.Uid != id.uid || st.Nlink != 1) {
		return errors.New("it is not a file of the user that the step ran as")
	}
	return nil
}
