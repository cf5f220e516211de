package monitor

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"marbles/state"
)

// A server can say that nothing changed though something did. So the whole is fetched now and then: at the first look
// of a source, which is also the first one after its definition changed, then at every hundredth, and a day after it
// was fetched last.
const (
	wholeEvery = 100
	wholeAfter = 24 * time.Hour
)

// maxValidator is the most bytes of a validator that is kept: each request would carry it.
const maxValidator = 1 << 10

// committed is what is compared with: what a record says, without its body.
type committed struct {
	stamp      state.FileStamp
	hash       string // "" for no observation
	filter     string
	validators state.Validators
}

// httpMemory is what a source remembers from look to look. All of it may be lost at any time: it saves loading a record
// that has not changed, fetching a body that has not, and taking apart one that is the same byte for byte.
type httpMemory struct {
	mu  sync.Mutex // guards the rest
	was committed  // the record as it was last loaded

	// What was last seen to be the same as an observation with this hash and filter: its body, and what to ask for it
	// by. The committed validators can be outdated though the content is not, as when a server was started anew.
	hash, filter string
	body         [sha256.Size]byte
	validators   state.Validators

	whole time.Time // when the whole was fetched last
	looks int       // since then
}

// committed is what is compared with. The record itself is nil where it did not have to be loaded, or there is none.
func (s *httpSource) committed(prev Committed) (committed, *state.MonitorRecord, error) {
	s.memory.mu.Lock()
	was := s.memory.was
	s.memory.mu.Unlock()
	if prev.Stamp != (state.FileStamp{}) && was.stamp == prev.Stamp {
		return was, nil, nil
	}
	return s.load(prev)
}

func (s *httpSource) load(prev Committed) (committed, *state.MonitorRecord, error) {
	rec, err := prev.load()
	if err != nil {
		return committed{}, nil, err
	}
	was := committed{stamp: prev.Stamp}
	if rec != nil {
		was.hash, was.filter, was.validators = rec.Hash, rec.Filter, rec.Validators
	}
	s.memory.mu.Lock()
	s.memory.was = was
	s.memory.mu.Unlock()
	return was, rec, nil
}

// condition is what to ask by, its zero value for the whole. What a server said goes back word for word, and only if
// it belongs to what was committed: after an answer whose handler failed, that is not the last one.
func (s *httpSource) condition(was committed, whole bool) state.Validators {
	m := &s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	if whole || was.hash == "" || was.filter != s.filter ||
		m.whole.IsZero() || m.looks >= wholeEvery || time.Since(m.whole) >= wholeAfter {
		return state.Validators{}
	}
	if m.hash == was.hash && m.filter == was.filter {
		return m.validators
	}
	return was.validators
}

// isSame reports whether a body is byte for byte one that was the same as what is committed.
func (m *httpMemory) isSame(was committed, body []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return was.hash != "" && m.hash == was.hash && m.filter == was.filter && m.body == sha256.Sum256(body)
}

// fetched keeps what an answer with a body teaches. same says that it was the same as what is committed.
func (m *httpMemory) fetched(was committed, a *answer, same bool) {
	if a.notModified {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.whole, m.looks = time.Now(), 0
	if same {
		m.hash, m.filter, m.body, m.validators = was.hash, was.filter, sha256.Sum256(a.body), a.validators
	}
}

// validatorsOf is what an answer can be asked for by, if anything.
func validatorsOf(h *hop, resp *http.Response) state.Validators {
	v := state.Validators{URL: recorded(h.url), ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified")}
	if h.method != http.MethodGet || v.ETag == "" && v.LastModified == "" ||
		len(v.ETag) > maxValidator || len(v.LastModified) > maxValidator || checkValue(v.ETag+v.LastModified) != nil {
		return state.Validators{}
	}
	return v
}
