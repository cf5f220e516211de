package cli

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/monitor"
	"marbles/state"
)

// observation is what a monitor committed, in short.
type observation struct {
	Kind        string   `json:"kind"`        // files | http
	CommittedAt *string  `json:"committedAt"` // when it was written
	Files       *int     `json:"files,omitzero"`
	Mounts      []string `json:"mounts,omitempty"`
	Status      int      `json:"status,omitzero"`
	Digest      string   `json:"digest,omitempty"`
	Size        *int     `json:"size,omitzero"` // of the body, in bytes as it is kept
	// What was selected, by what, and how the server said that this can be asked for.
	Filter     string           `json:"filter,omitempty"`
	Selection  jsontext.Value   `json:"selection,omitzero"`
	Validators state.Validators `json:"validators,omitzero"`
}

// newObservation sums up a record; nil where it holds a pending launch and nothing else.
func newObservation(m *state.MonitorRecord, stamp state.FileStamp) *observation {
	o := &observation{Kind: monitor.KindFiles}
	if stamp.Mtime != 0 {
		o.CommittedAt = instant(time.Unix(0, int64(stamp.Mtime)))
	}
	switch {
	case m.Hash != "":
		size := bodySize(m.Current, m.CurrentBase64)
		o.Kind, o.Status, o.Digest, o.Size = monitor.KindHTTP, m.Status, m.Hash, &size
		o.Filter, o.Selection, o.Validators = m.Filter, m.Selection, m.Validators
	case m.Files != nil:
		n := len(m.Files)
		o.Files, o.Mounts = &n, m.Mounts
	default:
		return nil
	}
	return o
}

// bodySize is how many bytes a kept body has.
func bodySize(current jsontext.Value, inBase64 bool) int {
	switch {
	case current.Kind() != '"':
		return len(compact(current))
	case inBase64:
		data, _ := base64.StdEncoding.DecodeString(textOf(current))
		return len(data)
	}
	return len(textOf(current))
}

// facts are the rows of `show`.
func (o *observation) facts() [][]string {
	if o == nil {
		return nil
	}
	rows := [][]string{{"committed", localText(o.CommittedAt)}}
	if o.Files != nil {
		rows = append(rows, []string{"files", count(*o.Files, "file")})
		if len(o.Mounts) > 0 {
			rows = append(rows, []string{"mounts", clean(strings.Join(o.Mounts, ", "), 300)})
		}
		return rows
	}
	return append(rows,
		[]string{"answer", fmt.Sprintf("HTTP %d, %s", o.Status, count(*o.Size, "byte"))},
		[]string{"digest", o.Digest},
		[]string{"select", clean(o.Filter, 300)},
		[]string{"selection", clean(compact(o.Selection), 300)},
		[]string{"etag", clean(o.Validators.ETag, 200)},
		[]string{"last modified", clean(o.Validators.LastModified, 100)})
}

// healthFacts are the rows of `show` that say how a monitor gets on.
func healthFacts(h *state.Health) (rows [][]string) {
	if h == nil {
		return nil
	}
	fact := func(name, value string) { rows = append(rows, []string{name, value}) }
	if h.Down {
		fact("down since", clock(h.DownSince.Time))
	}
	if h.Failures > 0 {
		fact("failed looks", fmt.Sprintf("%d in a row, since %s", h.Failures, clock(h.Since.Time)))
		fact("look error", clean(h.LastError, 500))
	}
	if h.Down && h.Successes > 0 {
		fact("good looks", fmt.Sprintf("%d in a row", h.Successes))
	}
	if h.RetryAt.After(time.Now()) {
		fact("retry at", clock(h.RetryAt.Time))
	}
	if h.Pending != "" {
		fact("pending notice", "on_"+clean(string(h.Pending), 20)+", until its handler succeeds")
	}
	for _, line := range h.Degraded {
		fact("degraded", clean(line, 300))
	}
	fact("degraded since", clock(h.DegradedSince.Time))
	fact("certificate ends", clock(h.CertExpires.Time))
	fact("last look", clock(h.LastLook.Time))
	return rows
}

// fillHealth adds how a monitor gets on.
func (k *keyStatus) fillHealth(h *state.Health) {
	if h == nil {
		return
	}
	k.Down, k.Degraded = h.Down, h.Degraded
	switch {
	case h.Down:
		k.Since = instant(h.DownSince.Time)
	case len(h.Degraded) > 0:
		k.Since = instant(h.DegradedSince.Time)
	}
}
