package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	artifactRecords = "records.json"
	artifactLock    = artifactRecords + ".lock"
	blobsDir        = "blobs"

	artifactPoll    = 25 * time.Millisecond
	artifactTimeout = 10 * time.Second
	lockTimedOut    = "Timed out waiting for artifact store lock" // the documented text
)

// Artifacts is the artifact store that all workspaces share: records.json, its lock, and one immutable file per blob.
// It is safe for concurrent use.
//
// A version is there once records.json says so. Its bytes are on the disk before that, so a crash leaves at most a file
// that no record names; those are removed once they are old.
type Artifacts struct {
	dir   string
	turn  chan struct{} // of those in this process who want the lock
	swept atomic.Bool

	fs   files              // nil is the real file system
	at   func(point string) // nil outside tests: called where a kill must do no harm
	wait time.Duration      // for the lock
}

// OpenArtifacts opens an artifact root; nothing is created before something is added.
func OpenArtifacts(dir string) *Artifacts {
	return &Artifacts{dir: dir, turn: make(chan struct{}, 1), wait: artifactTimeout}
}

// Artifact is a named thing with versions.
type Artifact struct {
	ID, Name, Type, Status string
	Versions               []ArtifactVersion // oldest first
}

// ArtifactVersion is one content of an artifact. Run, Step, Workspace and Project are where it comes from.
type ArtifactVersion struct {
	ID, Digest           string // SHA-256, hex
	Bytes                int64
	Created              time.Time
	Run, Step, Workspace string
	Project, Path        string
}

// NewArtifact is what is to be added.
type NewArtifact struct {
	Name, Type string
	File       string    // is read; links are not followed
	Content    io.Reader // is read instead, where it is given; File is then only a name
	Version    ArtifactVersion
}

// Add adds a version, durably, and says which it is. The same bytes are stored once.
func (a *Artifacts) Add(ctx context.Context, n NewArtifact) (ArtifactVersion, error) {
	v, err := a.add(ctx, n)
	if err != nil {
		return ArtifactVersion{}, fmt.Errorf("cannot keep artifact %s: %w", n.Name, err)
	}
	return v, nil
}

func (a *Artifacts) add(ctx context.Context, n NewArtifact) (ArtifactVersion, error) {
	if n.Name == "" {
		return ArtifactVersion{}, errors.New("it has no name")
	}
	content := n.Content
	if content == nil {
		f, err := openArtifact(n.File)
		if err != nil {
			return ArtifactVersion{}, err
		}
		defer func() { _ = f.Close() }()
		content = f
	}
	if err := makeDir(filepath.Join(a.dir, blobsDir)); err != nil {
		return ArtifactVersion{}, fmt.Errorf("cannot create %s: %w", a.dir, bare(err))
	}
	b, err := a.stage(ctx, content)
	if err != nil {
		return ArtifactVersion{}, err
	}
	v, published, err := a.commit(ctx, n, b)
	if !published {
		_ = a.files().remove(b.staged)
	}
	return v, err
}

// commit records a version whose bytes are staged, and publishes those where they are new.
func (a *Artifacts) commit(ctx context.Context, n NewArtifact, b staged) (v ArtifactVersion, published bool, err error) {
	lock, err := a.lock(ctx)
	if err != nil {
		return v, false, err
	}
	defer func() {
		if rerr := lock.release(); err == nil {
			err = rerr
		}
	}()
	a.point("locked")
	rec, err := a.read()
	if err != nil {
		return v, false, err
	}
	if !a.swept.Swap(true) {
		a.sweep(rec)
	}
	blob := rec.blob(b.digest)
	if blob == nil || !a.hasBlob(blob) {
		if err := a.publish(b); err != nil {
			return v, false, err
		}
		b.published, published = true, true
		a.point("published")
	}
	v = rec.add(n, b, blob, time.Now())
	data, err := encode(rec)
	if err != nil {
		return v, published, err
	}
	if !lock.held() { // someone took it away and may be writing
		return v, published, fmt.Errorf("lost the lock %s", filepath.Join(a.dir, artifactLock))
	}
	err = writer{fs: a.files()}.write(filepath.Join(a.dir, artifactRecords), data)
	a.point("recorded")
	return v, published, err
}

// List reads what there is, by name.
func (a *Artifacts) List() ([]Artifact, error) {
	rec, err := a.read()
	if err != nil {
		return nil, err
	}
	list := rec.list()
	slices.SortStableFunc(list, func(x, y Artifact) int { return strings.Compare(x.Name, y.Name) })
	return list, nil
}

// Read opens the bytes of a version, named by its id. What it gives is checked: bytes that are not those that were added
// are an error, at the latest at their end.
func (a *Artifacts) Read(version string) (io.ReadCloser, error) {
	rec, err := a.read()
	if err != nil {
		return nil, err
	}
	blobs, err := rec.blobsOf(version)
	if err != nil {
		return nil, fmt.Errorf("cannot read artifact version %s: %w", version, err)
	}
	r, err := a.openBlobs(blobs)
	if err != nil {
		return nil, fmt.Errorf("cannot read artifact version %s: %w", version, err)
	}
	return r, nil
}

// heldRecords is the lock on the records, and the turn within this process.
type heldRecords struct {
	a    *Artifacts
	lock *Lock
}

func (h heldRecords) held() bool { return h.lock.Held() }

func (h heldRecords) release() error {
	defer func() { <-h.a.turn }()
	return h.lock.Release()
}

// lock takes the lock on the records; it waits for it, but not for ever.
func (a *Artifacts) lock(ctx context.Context) (heldRecords, error) {
	deadline := time.NewTimer(a.wait)
	defer deadline.Stop()
	late := func(holder string) error {
		return fmt.Errorf("%s %s: it is held by %s", lockTimedOut, filepath.Join(a.dir, artifactLock), holder)
	}
	select {
	case a.turn <- struct{}{}:
	case <-deadline.C:
		return heldRecords{}, late("this process")
	case <-ctx.Done():
		return heldRecords{}, context.Cause(ctx)
	}
	poll := time.NewTicker(artifactPoll)
	defer poll.Stop()
	for {
		l, err := locker{dir: a.dir}.try(artifactLock)
		if err == nil {
			return heldRecords{a, l}, nil
		}
		var held *HeldError
		if errors.As(err, &held) {
			select {
			case <-poll.C:
				continue
			case <-deadline.C:
				err = late(held.Holder)
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		<-a.turn
		return heldRecords{}, err
	}
}

// read reads the records; there are none where there is no file.
func (a *Artifacts) read() (*artifactFile, error) {
	path := filepath.Join(a.dir, artifactRecords)
	rec := &artifactFile{}
	err := readRecord(path, rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return newArtifactFile(), nil
	case err != nil:
		return nil, err
	}
	if err := rec.check(); err != nil {
		return nil, &DamagedError{path, err}
	}
	return rec, nil
}

func (a *Artifacts) files() files {
	if a.fs == nil {
		return osFiles{}
	}
	return a.fs
}

func (a *Artifacts) point(name string) {
	if a.at != nil {
		a.at(name)
	}
}

// openArtifact opens a file that is to be kept. A link is refused, and it waits for nobody.
func openArtifact(path string) (*os.File, error) {
	f, _, err := openRegular(path, os.O_RDONLY|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("cannot read %s: it is a symbolic link", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read %s: %w", path, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	return f, nil
}
