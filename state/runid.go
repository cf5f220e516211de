package state

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

const runPrefix = "rn-"

// NewRunID returns "rn-" and a lower-case ULID for the instant, with entropy from crypto/rand.
// The first 20 bits after the milliseconds are the nanoseconds within them, so that
// ids sort by their instant; 60 random bits follow.
func NewRunID(now time.Time) string {
	var id ulid.ULID
	if err := id.SetTime(uint64(max(0, now.UnixMilli()))); err != nil {
		_ = id.SetTime(ulid.MaxTime())
	}
	random := id[6:]
	_, _ = rand.Read(random) // never fails: the process would crash
	within := uint32(now.Nanosecond() % int(time.Millisecond))
	random[0] = byte(within >> 12)
	random[1] = byte(within >> 4)
	random[2] = byte(within<<4) | random[2]&0x0f
	var text [ulid.EncodedSize]byte
	_ = id.MarshalTextTo(text[:]) // fails only for another size
	return runPrefix + string(bytes.ToLower(text[:]))
}

// CutRunID splits a text that begins with a run id.
func CutRunID(text string) (run, rest string, ok bool) {
	const n = len(runPrefix) + ulid.EncodedSize
	if !strings.HasPrefix(text, runPrefix) || len(text) < n {
		return "", text, false
	}
	return text[:n], text[n:], true
}

const (
	idLength = len(runPrefix) + ulid.EncodedSize
	idTime   = len(runPrefix) + 10 // the milliseconds of a ULID
)

// IsRunID reports whether a text is a whole run id, as [NewRunID] makes them.
func IsRunID(text string) bool {
	id, ok := strings.CutPrefix(text, runPrefix)
	_, err := ulid.ParseStrict(strings.ToUpper(id))
	return ok && err == nil && id == strings.ToLower(id)
}

// Errors of [Workspace.FindRun].
var (
	ErrUnknownRun   = errors.New("there is no such run")
	ErrAmbiguousRun = errors.New("several runs match")
)

// FindRun resolves a run id given whole, or by a unique prefix or suffix, with or
// without "rn-". An ambiguous text is an error that lists up to five matches and
// wraps [ErrAmbiguousRun]; one that no run has wraps [ErrUnknownRun].
func (w *Workspace) FindRun(text string) (string, error) {
	part := strings.TrimPrefix(strings.ToLower(text), runPrefix)
	if part == "" {
		return "", fmt.Errorf("cannot find run %q: %w", text, ErrUnknownRun)
	}
	if whole := runPrefix + part; PlainName("run id", whole) == nil {
		if _, err := os.Stat(w.path(runsDir, whole+recordExt)); err == nil {
			return whole, nil
		}
	}
	ids, err := listRecords(w.path(runsDir))
	if err != nil {
		return "", err
	}
	var found []string
	for _, id := range ids {
		low := strings.ToLower(id)
		if low == part || low == runPrefix+part {
			return id, nil
		}
		if strings.HasPrefix(strings.TrimPrefix(low, runPrefix), part) || strings.HasSuffix(low, part) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("cannot find run %q: %w", text, ErrUnknownRun)
	case 1:
		return found[0], nil
	}
	slices.Sort(found)
	const most = 5
	list := strings.Join(found[:min(most, len(found))], ", ")
	if more := len(found) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return "", fmt.Errorf("cannot find run %q: %w: %s", text, ErrAmbiguousRun, list)
}
