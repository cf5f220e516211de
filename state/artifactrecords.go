package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// artifactFile is records.json, version 1. What other programs wrote, and what we do not look at, stays as it is.
type artifactFile struct {
	Version   int              `json:"version"`
	Artifacts []artifactRecord `json:"artifacts"`
	Blobs     []blobRecord     `json:"blobs"`
	Contents  []contentRecord  `json:"contents"`
	Unknown   jsontext.Value   `json:",embed"`
}

// artifactRecord is a named thing. Its dates are {"$date": iso} or null.
type artifactRecord struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Type        string         `json:"type"`
	Status      string         `json:"status"` // draft | published | archived
	ContentID   *string        `json:"contentId"`
	Metadata    jsontext.Value `json:"metadata"`
	CreatedAt   jsontext.Value `json:"createdAt"`
	UpdatedAt   jsontext.Value `json:"updatedAt"`
	PublishedAt jsontext.Value `json:"publishedAt"`
	ArchivedAt  jsontext.Value `json:"archivedAt"`
	Unknown     jsontext.Value `json:",embed"`
}

// contentRecord is one version of an artifact: a tree of files.
type contentRecord struct {
	ID         string                    `json:"id"`
	ArtifactID string                    `json:"artifactId"`
	State      string                    `json:"state"` // generating | ready | failed | frozen
	Digest     string                    `json:"digest"`
	Tree       map[string]jsontext.Value `json:"tree"` // a treeFile, where it is one
	Tag        *string                   `json:"tag"`
	Metadata   jsontext.Value            `json:"metadata"`
	FrozenAt   jsontext.Value            `json:"frozenAt"`
	CreatedAt  jsontext.Value            `json:"createdAt"`
	UpdatedAt  jsontext.Value            `json:"updatedAt"`
	Unknown    jsontext.Value            `json:",embed"`
}

// treeFile is a file of a content.
type treeFile struct {
	Type   string `json:"type"` // file
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
	Mime   string `json:"mime"`
	BlobID string `json:"blobId"`
}

// blobRecord says where bytes are: exactly one of Path (in blobs/), Bytes ({"$bytes": base64}) and Chunks (blobs).
type blobRecord struct {
	ID         string         `json:"id"`
	Digest     string         `json:"digest"`
	ByteLength int64          `json:"byteLength"`
	CreatedAt  jsontext.Value `json:"createdAt"`
	Path       *string        `json:"path,omitzero"`
	Bytes      jsontext.Value `json:"bytes,omitzero"`
	Chunks     []string       `json:"chunks,omitzero"`
	Unknown    jsontext.Value `json:",embed"`
}

// contentMetadata is what we say of a version, and read of others'.
type contentMetadata struct {
	Entry   string       `json:"entry,omitempty"` // the file that is meant
	RunID   string       `json:"runId,omitempty"`
	Marbles *contentFrom `json:"marbles,omitzero"`
}

// contentFrom is where a version comes from. The texts are paths, which need not be UTF-8: those bytes are shown, not kept.
type contentFrom struct {
	Run       string `json:"run"`
	Step      string `json:"step"`
	Workspace string `json:"workspace"`
	Project   string `json:"project"`
	Path      string `json:"path"`
}

func newArtifactFile() *artifactFile {
	return &artifactFile{Version: 1, Artifacts: []artifactRecord{}, Blobs: []blobRecord{}, Contents: []contentRecord{}}
}

func (f *artifactFile) format() (got, newest int) { return f.Version, 1 }

// check refuses records that do not hang together: what was added to them could not be found again.
func (f *artifactFile) check() error {
	if f.Version != 1 || f.Artifacts == nil || f.Blobs == nil || f.Contents == nil {
		return errors.New("these are no artifact records: version, artifacts, blobs and contents are wanted")
	}
	artifacts, blobs, contents := map[string]bool{}, map[string]bool{}, map[string]bool{}
	fresh := func(known map[string]bool, what, id string) error {
		if id == "" {
			return fmt.Errorf("%s has no id", what)
		}
		if known[id] {
			return fmt.Errorf("%s %s is there twice", what, id)
		}
		known[id] = true
		return nil
	}
	for i := range f.Artifacts {
		if err := fresh(artifacts, "artifact", f.Artifacts[i].ID); err != nil {
			return err
		}
	}
	for i := range f.Blobs {
		b := &f.Blobs[i]
		if err := fresh(blobs, "blob", b.ID); err != nil {
			return err
		}
		if err := b.check(); err != nil {
			return fmt.Errorf("blob %s: %w", b.ID, err)
		}
	}
	for i := range f.Contents {
		c := &f.Contents[i]
		if err := fresh(contents, "content", c.ID); err != nil {
			return err
		}
		if !artifacts[c.ArtifactID] {
			return fmt.Errorf("content %s is of artifact %q, which is missing", c.ID, c.ArtifactID)
		}
		for _, file := range c.files() {
			if !blobs[file.BlobID] {
				return fmt.Errorf("content %s has blob %q, which is missing", c.ID, file.BlobID)
			}
		}
	}
	return nil
}

func (b *blobRecord) check() error {
	sources := 0
	for _, has := range []bool{b.Path != nil, b.Bytes != nil, b.Chunks != nil} {
		if has {
			sources++
		}
	}
	switch {
	case sources != 1:
		return errors.New("exactly one of path, bytes and chunks is wanted")
	case len(b.Digest) != 2*sha256.Size || strings.Trim(b.Digest, "0123456789abcdef") != "":
		return errors.New("its digest is no SHA-256")
	case b.ByteLength < 0:
		return errors.New("its length is negative")
	case b.Path != nil && !isBlobName(*b.Path):
		return errors.New("its path is no name of a blob's file")
	}
	return nil
}

// within is the bytes of a blob that the records themselves hold.
func (b *blobRecord) within() ([]byte, error) {
	var v struct {
		Bytes string `json:"$bytes"`
	}
	err := decode(b.Bytes, &v)
	var data []byte
	if err == nil {
		data, err = base64.StdEncoding.DecodeString(v.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("its bytes are damaged: %w", err)
	}
	return data, nil
}

// blob finds the blob that has these bytes whole.
func (f *artifactFile) blob(digest string) *blobRecord {
	i := slices.IndexFunc(f.Blobs, func(b blobRecord) bool { return b.Digest == digest && b.Chunks == nil })
	if i < 0 {
		return nil
	}
	return &f.Blobs[i]
}

// add adds a version with bytes that are staged, or that blob has already. A blob whose file was lost gets the new one.
func (f *artifactFile) add(n NewArtifact, b staged, blob *blobRecord, now time.Time) ArtifactVersion {
	date := dateValue(now)
	if blob == nil {
		f.Blobs = append(f.Blobs, blobRecord{ID: newUUID(), Digest: b.digest, ByteLength: b.bytes, CreatedAt: date, Path: &b.name})
		blob = &f.Blobs[len(f.Blobs)-1]
	} else if blob.Path != nil && b.published {
		blob.Path, blob.ByteLength = &b.name, b.bytes
	}
	v := n.Version
	v.ID, v.Digest, v.Bytes, v.Created = newUUID(), b.digest, b.bytes, dateOf(date)
	path := v.Path
	if path == "" {
		path = n.File
	}
	entry := strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
	if path == "" {
		entry = "content"
	}
	a := f.named(n, date)
	f.Contents = append(f.Contents, contentRecord{
		ID: v.ID, ArtifactID: a.ID, State: "frozen", Digest: treeDigest(entry, b.digest),
		Tree: map[string]jsontext.Value{entry: object(treeFile{"file", b.digest, b.bytes, a.Type, blob.ID})},
		Metadata: object(contentMetadata{Entry: entry, RunID: v.Run,
			Marbles: &contentFrom{Run: v.Run, Step: v.Step, Workspace: v.Workspace, Project: v.Project, Path: v.Path}}),
		FrozenAt: date, CreatedAt: date, UpdatedAt: date,
	})
	a.ContentID, a.UpdatedAt = &v.ID, date
	return v
}

// named is the artifact of marbles with that name; it is made where there is none. One of another program with the same
// name is another artifact.
func (f *artifactFile) named(n NewArtifact, date jsontext.Value) *artifactRecord {
	for i := range f.Artifacts {
		if a := &f.Artifacts[i]; a.Name == n.Name && a.ours() {
			a.Type = cmp.Or(n.Type, a.Type)
			return a
		}
	}
	f.Artifacts = append(f.Artifacts, artifactRecord{
		ID: newUUID(), Name: n.Name, Type: cmp.Or(n.Type, "application/octet-stream"), Status: "published",
		Metadata: object(map[string]string{"by": artifactsBy}), CreatedAt: date, UpdatedAt: date, PublishedAt: date,
	})
	return &f.Artifacts[len(f.Artifacts)-1]
}

const artifactsBy = "marbles"

func (a *artifactRecord) ours() bool {
	var m struct {
		By string `json:"by"`
	}
	return decode(a.Metadata, &m) == nil && m.By == artifactsBy
}

// list is every artifact with its versions.
func (f *artifactFile) list() []Artifact {
	at := map[string]int{}
	var list []Artifact
	for i := range f.Artifacts {
		a := &f.Artifacts[i]
		at[a.ID] = len(list)
		list = append(list, Artifact{ID: a.ID, Name: a.Name, Type: a.Type, Status: a.Status})
	}
	for i := range f.Contents {
		c := &f.Contents[i]
		a := &list[at[c.ArtifactID]]
		a.Versions = append(a.Versions, f.version(c))
	}
	for i := range list {
		slices.SortStableFunc(list[i].Versions, func(x, y ArtifactVersion) int { return x.Created.Compare(y.Created) })
	}
	return list
}

func (f *artifactFile) version(c *contentRecord) ArtifactVersion {
	v := ArtifactVersion{ID: c.ID, Digest: c.Digest, Created: dateOf(c.CreatedAt)}
	m := c.metadata()
	if v.Run = m.RunID; m.Marbles != nil {
		v.Run, v.Step, v.Workspace, v.Project, v.Path = m.Marbles.Run, m.Marbles.Step, m.Marbles.Workspace, m.Marbles.Project, m.Marbles.Path
	}
	if name, file, ok := c.root(); ok {
		v.Digest, v.Bytes, v.Path = file.Digest, file.Bytes, cmp.Or(v.Path, name)
	}
	return v
}

func (c *contentRecord) metadata() (m contentMetadata) {
	_ = decode(c.Metadata, &m) // another program's says what it likes
	return m
}

// files are the files of a content, by their names.
func (c *contentRecord) files() map[string]treeFile {
	files := make(map[string]treeFile, len(c.Tree))
	for name, v := range c.Tree {
		var f treeFile
		if decode(v, &f) == nil && f.Type == "file" {
			files[name] = f
		}
	}
	return files
}

// root is the file that a content is about: the one its metadata names, else the only one, else index.html.
func (c *contentRecord) root() (name string, f treeFile, ok bool) {
	files := c.files()
	name = c.metadata().Entry
	if name == "" && len(files) == 1 {
		for only := range files {
			name = only
		}
	}
	f, ok = files[cmp.Or(name, "index.html")]
	return name, f, ok
}

// blobsOf are the blobs that a version's bytes are in, in their order.
func (f *artifactFile) blobsOf(version string) ([]*blobRecord, error) {
	i := slices.IndexFunc(f.Contents, func(c contentRecord) bool { return c.ID == version })
	if i < 0 {
		return nil, errors.New("there is no such version")
	}
	_, file, ok := f.Contents[i].root()
	if !ok {
		return nil, errors.New("it is not one file")
	}
	byID := make(map[string]*blobRecord, len(f.Blobs))
	for i := range f.Blobs {
		byID[f.Blobs[i].ID] = &f.Blobs[i]
	}
	blob := byID[file.BlobID]
	if blob.Chunks == nil {
		return []*blobRecord{blob}, nil
	}
	var parts []*blobRecord
	for _, id := range blob.Chunks {
		part := byID[id]
		if part == nil || part.Chunks != nil {
			return nil, fmt.Errorf("its bytes are damaged: piece %s is missing", id)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// treeDigest is the digest of a tree of one file, as the format has it: of the canonical list of names and digests.
func treeDigest(name, digest string) string {
	b := append([]byte("[["), appendJSString(nil, name)...)
	sum := sha256.Sum256(append(append(append(b, `,"`...), digest...), `"]]`...))
	return hex.EncodeToString(sum[:])
}

// dateValue is an instant as these records have it: {"$date": iso}.
func dateValue(t time.Time) jsontext.Value {
	return object(map[string]Stamp{"$date": {t}})
}

func dateOf(v jsontext.Value) time.Time {
	var d struct {
		Date Stamp `json:"$date"`
	}
	_ = decode(v, &d) // no date: zero
	return d.Date.Time
}

// object is a value as JSON. It cannot fail: these are plain records.
func object(v any) jsontext.Value {
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		return jsontext.Value("null")
	}
	return b
}
