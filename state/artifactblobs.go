package state

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// staged are bytes that are on the disk under a temporary name.
type staged struct {
	name   string // the file it will be, in blobs/
	staged string // the path it has now
	digest string
	bytes  int64

	published bool // it has its name
}

// stage writes the bytes to blobs/<uuid>.tmp, durably, read-only, and digests them on the way.
func (a *Artifacts) stage(ctx context.Context, content io.Reader) (staged, error) {
	b := staged{name: newUUID()}
	path := filepath.Join(a.dir, blobsDir, b.name)
	b.staged = path + tempExt
	sum := sha256.New()
	w := writer{fs: a.files(), perm: blobPerm}
	err := w.stage(path, b.staged, func(to io.Writer) error {
		a.point("staging")
		n, err := io.Copy(io.MultiWriter(to, sum), untilDone{ctx, content})
		b.bytes = n
		return err
	})
	b.digest = hex.EncodeToString(sum.Sum(nil))
	a.point("staged")
	return b, err
}

// blobPerm keeps even their owner from changing the bytes by mistake.
const blobPerm = 0o400

// untilDone stops reading when its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}

// publish gives staged bytes their name, durably.
func (a *Artifacts) publish(b staged) error {
	return writer{fs: a.files(), fresh: true}.publish(filepath.Join(a.dir, blobsDir, b.name), b.staged)
}

// hasBlob reports whether the bytes of a blob are where its record says. Those within the records, or in pieces, are.
func (a *Artifacts) hasBlob(b *blobRecord) bool {
	if b.Path == nil {
		return true
	}
	info, err := os.Lstat(filepath.Join(a.dir, blobsDir, *b.Path))
	return err == nil && info.Mode().IsRegular() && info.Size() == b.ByteLength
}

// openBlobs reads blobs one behind the other.
func (a *Artifacts) openBlobs(blobs []*blobRecord) (io.ReadCloser, error) {
	all := &blobReader{}
	for _, b := range blobs {
		part, err := a.openBlob(b)
		if err != nil {
			_ = all.Close()
			return nil, err
		}
		all.parts = append(all.parts, part)
	}
	return all, nil
}

func (a *Artifacts) openBlob(b *blobRecord) (*blobPart, error) {
	p := &blobPart{record: b, sum: sha256.New()}
	if b.Path == nil {
		data, err := b.within()
		if err != nil {
			return nil, err
		}
		p.ReadCloser = io.NopCloser(strings.NewReader(string(data)))
		return p, nil
	}
	f, info, err := openRegular(filepath.Join(a.dir, blobsDir, *b.Path), os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("its bytes are gone: %w", err)
	}
	if info.Size() != b.ByteLength {
		_ = f.Close()
		return nil, fmt.Errorf("its bytes are damaged: %s has %d, not %d", f.Name(), info.Size(), b.ByteLength)
	}
	p.ReadCloser = f
	return p, nil
}

// blobReader reads blobs in their order.
type blobReader struct {
	parts []*blobPart
	next  int
}

func (r *blobReader) Read(b []byte) (int, error) {
	for r.next < len(r.parts) {
		n, err := r.parts[r.next].Read(b)
		if err == io.EOF {
			r.next++
			err = nil
		}
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
	}
	return 0, io.EOF
}

func (r *blobReader) Close() error {
	var errs []error
	for _, p := range r.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// blobPart reads one blob and compares it with its digest at the end.
type blobPart struct {
	io.ReadCloser
	record *blobRecord
	sum    hash.Hash
}

func (p *blobPart) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.sum.Write(b[:n])
	if err == io.EOF && hex.EncodeToString(p.sum.Sum(nil)) != p.record.Digest {
		return n, fmt.Errorf("its bytes are damaged: they are not those of SHA-256 %s", p.record.Digest)
	}
	return n, err
}

// orphanAge is after how long a file that no record names cannot be one that is about to be recorded.
const orphanAge = time.Hour

// sweep removes what writers that were killed have left. The lock is held.
func (a *Artifacts) sweep(rec *artifactFile) {
	_, _ = sweepTemps([]string{a.dir})
	known := map[string]bool{}
	for i := range rec.Blobs {
		if p := rec.Blobs[i].Path; p != nil {
			known[*p] = true
		}
	}
	dir := filepath.Join(a.dir, blobsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if known[e.Name()] || !isBlobName(strings.TrimSuffix(e.Name(), tempExt)) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > orphanAge {
			_ = a.files().remove(filepath.Join(dir, e.Name()))
		}
	}
}

// isBlobName reports whether a name can be that of a blob's file: hex digits and dashes.
func isBlobName(name string) bool {
	return name != "" && strings.Trim(name, "0123456789abcdef-") == ""
}

// newUUID is a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the process would crash
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
