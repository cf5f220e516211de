package state

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io/fs"
	"math"
	"os"
	"slices"
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
// is read from its file. The last valid line of an id wins; one with an unsettled status takes the
// id out again: the run was reopened, or is being deleted.
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
// an open hash table over the text, small enough for the processor's cache: a map of
// 100,000 strings costs more than the reading does.
type index struct {
	text  []byte
	seed  maphash.Seed
	slots []indexSlot // a power of two, at most half full; nil for none
	all   int         // lines that are not empty, dead and damaged ones included
	valid int         // of them

	unusable bool // there is something that cannot be read, so nothing can be appended to it
}

// indexSlot names the last valid line of an id.
type indexSlot struct {
	next uint32 // 1 + where the line begins in text; 0 is an empty slot
	mark uint32 // the lower half of the id's hash, but in its last bit: settled
}

const settledBit = 1

// readIndex reads the index. One that is missing or cannot be read is empty: what it
// knows is read from the files then.
func (w *Workspace) readIndex() *index {
	text, err := readFile(w.path(indexFile))
	if err != nil || len(text) >= math.MaxUint32 {
		return &index{unusable: err == nil || !errors.Is(err, fs.ErrNotExist)}
	}
	return scanIndex(text)
}

// scanIndex finds the valid lines. It looks only at their ids, states and checksums:
// of 100,000 lines a page needs 50.
func scanIndex(text []byte) *index {
	x := &index{text: text, seed: maphash.MakeSeed()}
	const typical = 100 // bytes of a line
	valid := make([]uint32, 0, len(text)/typical)
	for from := 0; from < len(text); {
		end := bytes.IndexByte(text[from:], '\n')
		if end < 0 {
			end = len(text) - from
		}
		if end > 0 {
			x.all++
			if checked(text[from : from+end]) {
				valid = append(valid, uint32(from))
			}
		}
		from += end + 1
	}
	x.valid = len(valid)
	size := 2
	for size < 2*len(valid) {
		size *= 2
	}
	x.slots = make([]indexSlot, size)
	for _, from := range valid {
		x.add(from)
	}
	return x
}

// checked reports whether a line, without its newline, has the right checksum.
func checked(line []byte) bool {
	n := len(line) - crcLen - 1
	if n <= 0 || line[n] != '\t' {
		return false
	}
	var room [crcLen]byte
	want := appendHex(room[:0], crc32.Checksum(line[:n], castagnoli))
	return bytes.Equal(line[n+1:], want)
}

// add puts the valid line that begins at from in the table.
func (x *index) add(from uint32) {
	id, rest, _ := bytes.Cut(x.text[from:], []byte{'\t'})
	status, _, _ := bytes.Cut(rest, []byte{'\t'})
	hash := maphash.Bytes(x.seed, id)
	slot := indexSlot{next: from + 1, mark: uint32(hash) &^ settledBit}
	if Status(status).Settled() {
		slot.mark |= settledBit
	}
	i := x.probe(hash, func(from int) bool { return begins(x, from, id) })
	x.slots[i] = slot
}

// probe is the slot of an id, or the empty one it would take; same tells whether the
// line that begins there has that id.
func (x *index) probe(hash uint64, same func(from int) bool) int {
	mask := len(x.slots) - 1
	i := int(hash>>32) & mask
	for {
		slot := x.slots[i]
		if slot.next == 0 || (slot.mark^uint32(hash))&^settledBit == 0 && same(int(slot.next-1)) {
			return i
		}
		i = (i + 1) & mask
	}
}

// begins reports whether the line at from is that of an id.
func begins[T string | []byte](x *index, from int, id T) bool {
	end := from + len(id)
	return end < len(x.text) && x.text[end] == '\t' && string(x.text[from:end]) == string(id)
}

// slot is that of an id; the zero one where no line is its.
func (x *index) slot(id string) indexSlot {
	if x.slots == nil {
		return indexSlot{}
	}
	return x.slots[x.probe(maphash.String(x.seed, id), func(from int) bool { return begins(x, from, id) })]
}

// find is the text from the line of a settled run on.
func (x *index) find(id string) (text []byte, ok bool) {
	slot := x.slot(id)
	if slot.next == 0 || slot.mark&settledBit == 0 {
		return nil, false
	}
	return x.text[slot.next-1:], true
}

// out reports whether the last line of an id took it out.
func (x *index) out(id string) bool {
	slot := x.slot(id)
	return slot.next != 0 && slot.mark&settledBit == 0
}

// latest is the last line of an id, whatever it says, without its newline.
func (x *index) latest(id string) (line []byte, ok bool) {
	slot := x.slot(id)
	if slot.next == 0 {
		return nil, false
	}
	line, _, _ = bytes.Cut(x.text[slot.next-1:], []byte{'\n'})
	return line, true
}

func (x *index) has(id string) bool {
	_, ok := x.find(id)
	return ok
}

// without is those of the ids that the index does not have. Nearly every look at it misses
// the processor's cache, so all processors share them.
func (x *index) without(ids []string) []string {
	const block = 4096
	blocks := slices.Collect(slices.Chunk(ids, block))
	kept := make([][]string, len(blocks))
	each(len(blocks), func(i int) {
		for _, id := range blocks[i] {
			if !x.has(id) {
				kept[i] = append(kept[i], id)
			}
		}
	})
	return slices.Concat(kept...)
}

// line is the whole line of a settled run, checksum included and newline not.
func (x *index) line(id string) (line []byte, ok bool) {
	text, ok := x.find(id)
	line, _, _ = bytes.Cut(text, []byte{'\n'})
	return line, ok
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
	f, _, err := openShared(w.path(indexFile))
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
// stale, mostly dead lines, or cannot be read. Others may append to it meanwhile.
func (w *Workspace) RebuildIndex() error { return w.rebuildIndex(false) }

// damagedLines counts the lines that fail their checksum.
func (x *index) damagedLines() int { return x.all - x.valid }

func (w *Workspace) rebuildIndex(force bool) error {
	ids, x, err := w.runIDs()
	if err != nil {
		return err
	}
	unknown := x.without(ids)
	settled := make(map[string][]byte)
	const some = 1000 // heads in memory at once
	for batch := range slices.Chunk(unknown, some) {
		for i, h := range w.readHeads(batch) {
			if h.err == nil && h.summary.Status.Settled() {
				settled[batch[i]] = appendIndexLine(nil, &h.summary)
			}
		}
	}
	live := len(ids) - len(unknown)
	const slack = 1000 // dead lines that are not worth a rewrite
	rewrite := force || x.unusable || x.all > 2*live+slack
	if !rewrite && len(settled) == 0 {
		return nil
	}
	path := w.path(indexFile)
	f, release, err := holdFile(path)
	switch {
	case err == nil:
		defer release()
	case !x.unusable:
		return fmt.Errorf("cannot write %s: %w", path, bare(err))
	}
	// A run that was settled when its file was read may have been reopened since: then the index says so by now.
	now := w.readIndex()
	for id := range settled {
		if now.out(id) || now.has(id) {
			delete(settled, id)
		}
	}
	if !rewrite {
		return w.appendSettled(f, unknown, settled)
	}
	var all []byte
	for _, id := range ids {
		if line, ok := now.latest(id); ok {
			all = append(append(all, line...), '\n')
		}
	}
	for _, id := range unknown {
		all = append(all, settled[id]...)
	}
	// Synced, because a line that takes an id out must not come undone by a power cut.
	return w.writer().write(path, all)
}

// appendSettled appends the lines of settled runs to the index, which nobody else changes.
func (w *Workspace) appendSettled(f *os.File, ids []string, lines map[string][]byte) error {
	var fresh []byte
	for _, id := range ids {
		fresh = append(fresh, lines[id]...)
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := appendLine(f, fresh); err != nil {
		return fmt.Errorf("cannot append to %s: %w", f.Name(), bare(err))
	}
	return nil
}
