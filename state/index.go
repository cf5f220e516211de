package state

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// runs.index is an append-only text file with one line for each settled run:
//
//	id status created started ended name key trigger error crc
//
// separated by tabs; times are milliseconds since the epoch or 0, texts are quoted
// as in Go where they have to be, crc is the CRC-32C of what stands before it in
// hex. Every line is one O_APPEND write that is never synced. A line that a crash
// tore, or that a second writer ran into, fails its checksum and is ignored; then the run
// is read from its file. The last valid line of an id wins; one with an unsettled
// status takes the id out again.
//
// A line is appended only after the run file is durable, so the index never knows
// more than the files do. An id without a file does not exist.
const indexFile = "runs.index"

const (
	crcLen        = 8
	maxIndexError = 200 // bytes of an error text that lists show
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendIndexLine appends the line of a run, its newline included.
func appendIndexLine(b []byte, s *RunSummary) []byte {
	from := len(b)
	b = append(b, s.ID...)
	b = append(append(b, '\t'), s.Status...)
	for _, t := range []Millis{ToMillis(s.Created), ToMillis(s.Started), ToMillis(s.Ended)} {
		b = strconv.AppendInt(append(b, '\t'), int64(t), 10)
	}
	for _, text := range []string{s.Name, s.Key, s.Trigger, shorten(s.Error, maxIndexError)} {
		b = appendField(append(b, '\t'), text)
	}
	sum := crc32.Checksum(b[from:], castagnoli)
	b = append(b, '\t')
	return append(appendHex(b, sum), '\n')
}

// appendField appends a text, quoted unless it stands for itself.
func appendField(b []byte, text string) []byte {
	plain := utf8.ValidString(text) && !strings.HasPrefix(text, `"`)
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] >= ' ' && text[i] != 0x7f
	}
	if plain {
		return append(b, text...)
	}
	return strconv.AppendQuote(b, text)
}

func appendHex(b []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[sum>>shift&15])
	}
	return b
}

// shorten cuts a text at a rune within so many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// index is what runs.index says: for each settled run the place of its line. It is
// an open hash table over the text, for a map of 100,000 strings costs more than the
// reading does.
type index struct {
	text  []byte
	seed  maphash.Seed
	slots []indexSlot // a power of two, at most half full; nil for none
	all   int         // lines that are not empty, dead and damaged ones included
}

// indexSlot names the last valid line of an id.
type indexSlot struct {
	from    int // of the line in text
	hash    uint32
	used    bool
	settled bool
}

// readIndex reads the index. One that is missing or cannot be read is empty: what it
// knows is read from the files then.
func (w *Workspace) readIndex() *index {
	text, err := os.ReadFile(w.path(indexFile))
	if err != nil {
		return &index{}
	}
	return scanIndex(text)
}

// scanIndex finds the valid lines. It looks only at their ids, states and checksums:
// of 100,000 lines a page needs 50.
func scanIndex(text []byte) *index {
	x := &index{text: text, seed: maphash.MakeSeed()}
	size := 2
	for size < 2*(bytes.Count(text, []byte{'\n'})+1) {
		size *= 2
	}
	x.slots = make([]indexSlot, size)
	for from := 0; from < len(text); {
		end := bytes.IndexByte(text[from:], '\n')
		if end < 0 {
			end = len(text) - from
		}
		if end > 0 {
			x.all++
			if line, ok := checked(text[from : from+end]); ok {
				x.add(from, line)
			}
		}
		from += end + 1
	}
	return x
}

// checked is a line without its checksum, where that is right.
func checked(text []byte) (line []byte, ok bool) {
	n := len(text) - crcLen - 1
	if n <= 0 || text[n] != '\t' {
		return nil, false
	}
	var room [crcLen]byte
	want := appendHex(room[:0], crc32.Checksum(text[:n], castagnoli))
	return text[:n], bytes.Equal(text[n+1:], want)
}

func (x *index) add(from int, line []byte) {
	id, rest, _ := bytes.Cut(line, []byte{'\t'})
	status, _, _ := bytes.Cut(rest, []byte{'\t'})
	if len(id) == 0 {
		return
	}
	hash := maphash.Bytes(x.seed, id)
	i := x.probe(hash, func(have []byte) bool { return bytes.Equal(have, id) })
	x.slots[i] = indexSlot{from: from, hash: uint32(hash), used: true, settled: Status(status).Settled()}
}

// probe is the slot of an id, or the empty one it would take.
func (x *index) probe(hash uint64, same func(id []byte) bool) int {
	mask := len(x.slots) - 1
	i := int(hash>>32) & mask
	for x.slots[i].used && (x.slots[i].hash != uint32(hash) || !same(x.idAt(x.slots[i].from))) {
		i = (i + 1) & mask
	}
	return i
}

func (x *index) idAt(from int) []byte {
	id, _, _ := bytes.Cut(x.text[from:], []byte{'\t'})
	return id
}

// line is the whole line of a settled run, checksum included and newline not.
func (x *index) line(id string) (line []byte, ok bool) {
	if x.slots == nil {
		return nil, false
	}
	i := x.probe(maphash.String(x.seed, id), func(have []byte) bool { return string(have) == id })
	if !x.slots[i].used || !x.slots[i].settled {
		return nil, false
	}
	line, _, _ = bytes.Cut(x.text[x.slots[i].from:], []byte{'\n'})
	return line, true
}

func (x *index) has(id string) bool {
	_, ok := x.line(id)
	return ok
}

// summary parses the line of a run.
func (x *index) summary(id string) (s RunSummary, ok bool) {
	text, ok := x.line(id)
	if !ok {
		return RunSummary{}, false
	}
	rest := string(text)
	field := func() (f string) {
		f, rest, _ = strings.Cut(rest, "\t")
		return f
	}
	when := func() time.Time {
		n, err := strconv.ParseInt(field(), 10, 64)
		ok = ok && err == nil
		return Millis(n).Time()
	}
	words := func() string {
		f := field()
		if !strings.HasPrefix(f, `"`) {
			return f
		}
		f, err := strconv.Unquote(f)
		ok = ok && err == nil
		return f
	}
	_ = field() // the id
	s.ID, s.Status = id, Status(field())
	s.Created, s.Started, s.Ended = when(), when(), when()
	s.Name, s.Key, s.Trigger, s.Error = words(), words(), words(), words()
	return s, ok && len(rest) == crcLen && !strings.Contains(rest, "\t")
}

// appendIndex appends lines in one write, after ending a torn last line.
func (w *Workspace) appendIndex(lines []byte) error {
	f, _, err := openAppend(w.path(indexFile))
	if err != nil {
		return err
	}
	err = appendLine(f, lines)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// RebuildIndex writes the index afresh from the run files where it is missing,
// stale or mostly dead lines.
func (w *Workspace) RebuildIndex() error {
	ids, x, err := w.runIDs()
	if err != nil {
		return err
	}
	var unknown []string
	for _, id := range ids {
		if !x.has(id) {
			unknown = append(unknown, id)
		}
	}
	var fresh []byte
	for _, h := range w.readHeads(unknown) {
		if h.err == nil && h.summary.Status.Settled() {
			fresh = appendIndexLine(fresh, &h.summary)
		}
	}
	live := len(ids) - len(unknown)
	const slack = 1000 // dead lines that are not worth a rewrite
	if x.all <= 2*live+slack {
		if len(fresh) == 0 {
			return nil
		}
		if err := w.appendIndex(fresh); err != nil {
			return fmt.Errorf("cannot append to %s: %w", w.path(indexFile), bare(err))
		}
		return nil
	}
	var all []byte
	for _, id := range ids {
		if line, ok := x.line(id); ok {
			all = append(append(all, line...), '\n')
		}
	}
	// A line that another process appends to the old file meanwhile is lost, and
	// costs one read of its run.
	return writer{fs: w.files(), lazy: true}.write(w.path(indexFile), append(all, fresh...))
}
