package monitor

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/monitor/filter"
	"marbles/state"
)

// conditional is a server that obeys conditions, and remembers by which it was asked.
type conditional struct {
	etag, modified, text string
	asked                []string // If-None-Match and If-Modified-Since of each request
}

func (c *conditional) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	match, since := r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")
	c.asked = append(c.asked, strings.TrimSpace(match+" "+since))
	w.Header()["Etag"] = []string{c.etag}
	if c.etag == "" {
		w.Header().Del("Etag")
	}
	if c.modified != "" {
		w.Header().Set("Last-Modified", c.modified)
	}
	if match != "" && match == c.etag || match == "" && since != "" && since == c.modified {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	io.WriteString(w, c.text)
}

// replace puts another record in place, as another process would.
func (w *watcher) replace(rec *state.MonitorRecord) {
	w.record = rec
	w.stamp.Size++
}

func (c *conditional) expectAsked(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.asked); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	c.asked = nil
}

func TestValidatorsBelongToWhatWasCommitted(t *testing.T) {
	server := &conditional{etag: `"1"`, text: "v1"}
	w := watchURL(t, serve(t, server.ServeHTTP), HTTPOptions{})
	w.poll()
	if o := w.poll(); o.Changed || o.Record != nil || o.Summary != "304, not modified" || o.Body != nil {
		t.Errorf("304: got %+v", o)
	}
	server.expectAsked(t, "", `"1"`)
	server.etag, server.text = `"2"`, "v2"
	for range 2 { // the handler fails
		if o := w.mustLook(); !o.Changed || string(o.Body) != "v2" || string(o.Previous) != "v1" {
			t.Errorf("v2 before it was handled: got %+v", o)
		}
	}
	server.expectAsked(t, `"1"`, `"1"`)
	w.poll()
	if o := w.poll(); o.Changed {
		t.Errorf("v2 after it was handled: got %+v", o)
	}
	server.expectAsked(t, `"1"`, `"2"`)
	want := state.Validators{URL: w.source.String(), ETag: `"2"`}
	if diff := cmp.Diff(want, w.record.Validators); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestValidatorsGoBackWordForWord(t *testing.T) {
	for _, tt := range []struct{ etag, modified, want string }{
		{`W/"1"`, "", `W/"1"`},
		{`not quoted, "at all`, "", `not quoted, "at all`},
		{"", "Thursday, maybe", "Thursday, maybe"},
		{`"1"`, "Mon, 02 Jan 2006 15:04:05 GMT", `"1" Mon, 02 Jan 2006 15:04:05 GMT`},
		{"", "", ""},
	} {
		server := &conditional{etag: tt.etag, modified: tt.modified, text: "x"}
		w := watchURL(t, serve(t, server.ServeHTTP), HTTPOptions{})
		w.poll()
		if o := w.poll(); o.Changed {
			t.Errorf("%s: got %+v", tt.want, o)
		}
		server.expectAsked(t, "", tt.want)
	}
}

// A URL's query may be a secret, also one that a redirect gave: records have its digest, and validators stay with it.
func TestQueriesAreNotRecorded(t *testing.T) {
	server := &conditional{etag: `"1"`, text: "x"}
	token := "secret"
	mux := http.NewServeMux()
	mux.Handle("/here", server)
	mux.HandleFunc("/there", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/here?token="+token, http.StatusFound)
	})
	url := serve(t, mux.ServeHTTP)
	for _, path := range []string{"/here?token=secret", "/there?token=secret"} {
		w := watchURL(t, url+path, HTTPOptions{})
		w.poll()
		w.poll()
		if text := fmt.Sprintf("%s %+v", w.source, w.record); w.record.Validators.URL == "" || strings.Contains(text, "secret") {
			t.Errorf("%s: got %s", path, text)
		}
		server.expectAsked(t, "", `"1"`)
		if path == "/there?token=secret" {
			token = "another"
			w.poll()
			server.expectAsked(t, "")
		}
	}
}

// What the same content is asked for by can change without it, as when a server was started anew.
func TestValidatorsOfTheSameBody(t *testing.T) {
	server := &conditional{etag: `"1"`, text: "v1"}
	w := watchURL(t, serve(t, server.ServeHTTP), HTTPOptions{})
	w.poll()
	server.etag = `"1-again"`
	for range 3 {
		if o := w.poll(); o.Changed || o.Record != nil {
			t.Errorf("got %+v", o)
		}
	}
	server.expectAsked(t, "", `"1"`, `"1-again"`, `"1-again"`)

	// It is not what another record was made of.
	w.replace(&state.MonitorRecord{Version: 1, Hash: "other", Validators: state.Validators{URL: w.source.String(), ETag: `"0"`}})
	if o := w.mustLook(); !o.Changed {
		t.Errorf("another record: got %+v", o)
	}
	server.expectAsked(t, `"0"`)
}

func TestEntityTagsThatSayNothing(t *testing.T) {
	body, n := "same", 0
	var etag func() string
	w := watchURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag())
		io.WriteString(w, body)
	}), HTTPOptions{})
	etag = func() string { return `"x-gzip"` }
	w.poll()
	for range 5 {
		if o := w.poll(); o.Changed {
			t.Errorf("never a 304: got %+v", o)
		}
	}
	etag = func() string { n++; return `"` + strings.Repeat("x", n) + `"` }
	for range 5 {
		if o := w.poll(); o.Changed || o.Record != nil {
			t.Errorf("another each time: got %+v", o)
		}
	}
	etag = func() string { return `"x-gzip"` }
	body = "different"
	if o := w.poll(); !o.Changed {
		t.Error("the same entity tag hid a change")
	}
	if o := w.poll(); o.Changed {
		t.Errorf("and again: %+v", o)
	}
}

func TestValidatorsBelongToTheFinalURL(t *testing.T) {
	to := "/b"
	var asked []string
	mux := http.NewServeMux()
	mux.HandleFunc("/a", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("If-None-Match"))
		w.Header().Set("ETag", `"1"`)
		http.Redirect(w, r, to, http.StatusFound)
	})
	page := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("If-None-Match"))
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, "this is "+r.URL.Path)
	}
	mux.HandleFunc("/b", page)
	mux.HandleFunc("/c", page)
	w := watchURL(t, serve(t, mux.ServeHTTP)+"/a", HTTPOptions{})
	w.poll()
	if o := w.poll(); o.Changed {
		t.Errorf("got %+v", o)
	}
	to = "/c"
	if o := w.poll(); !o.Changed || string(o.Body) != "this is /c" {
		t.Errorf("redirected elsewhere: got %+v", o)
	}
	want := []string{"/a ", "/b ", "/a ", `/b "1"`, "/a ", "/c "}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestNotModifiedUnasked(t *testing.T) {
	server := &conditional{etag: `"1"`, text: "x"}
	answer := server.ServeHTTP
	w := watchURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) { answer(w, r) }), HTTPOptions{})
	w.poll()
	answer = status(http.StatusNotModified)
	if o, err := w.source.Look(t.Context(), w.committed(), LookOptions{Unconditional: true}); err == nil {
		t.Errorf("got %+v, want an error", o)
	}
	w.replace(&state.MonitorRecord{Version: 1, Hash: "other"})
	expectError(t, w, "HTTP 304, though no validators were sent")
	w.replace(nil)
	expectError(t, w, "HTTP 304, though no validators were sent")
}

// A server that chokes on its own validators is asked without them.
func TestConditionsThatAreRefused(t *testing.T) {
	for _, code := range []int{400, 412, 431} {
		asked := 0
		w := watchURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked++
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(code)
			}
			io.WriteString(w, "x")
		}), HTTPOptions{Hosts: NewHostLimit(1)})
		w.poll()
		if o := w.poll(); o.Changed || asked != 3 {
			t.Errorf("%d: got %+v after %d requests", code, o, asked)
		}
	}
	server := &conditional{etag: `"` + strings.Repeat("x", maxValidator) + `"`, text: "x"}
	w := watchURL(t, serve(t, server.ServeHTTP), HTTPOptions{})
	w.poll()
	w.poll()
	server.expectAsked(t, "", "")
}

func TestWholeNowAndThen(t *testing.T) {
	server := &conditional{etag: `"1"`, text: "x"}
	url := serve(t, server.ServeHTTP)
	w := watchURL(t, url, HTTPOptions{})
	w.poll()
	server.text = "y" // and the entity tag hides it
	changes := 0
	for range wholeEvery {
		if w.mustLook().Changed {
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("a hidden change was seen %d times in %d looks, want once", changes, wholeEvery)
	}
	if again := watchURL(t, url, HTTPOptions{}); true {
		again.record = w.record
		if !again.mustLook().Changed {
			t.Error("a source's first look was conditional")
		}
	}

	synctest.Test(t, func(t *testing.T) {
		s, err := newHTTP("http://h/", HTTPOptions{})
		must(t, err)
		was := committed{hash: "h", validators: state.Validators{URL: "http://h/", ETag: `"1"`}}
		s.memory.fetched(was, &answer{validators: was.validators}, true)
		time.Sleep(wholeAfter - time.Second)
		if s.condition(was, false) != was.validators {
			t.Error("unconditional before a day had passed")
		}
		time.Sleep(time.Second)
		if s.condition(was, false) == was.validators {
			t.Error("conditional after a day")
		}
	})
}

// A record is read only where it can have changed, or something is to be reported.
func TestRecordsAreReadWhenNeeded(t *testing.T) {
	var answer http.HandlerFunc = body("x")
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	w.poll()
	loads := 0
	stamp := state.FileStamp{Size: 1}
	look := func() *Observation {
		t.Helper()
		o, err := w.source.Look(t.Context(), Committed{Stamp: stamp, Load: func() (*state.MonitorRecord, error) {
			loads++
			return w.record, nil
		}}, LookOptions{})
		must(t, err)
		return o
	}
	expect := func(want int) {
		t.Helper()
		if loads != want {
			t.Errorf("got %d loads, want %d", loads, want)
		}
		loads = 0
	}
	for range 5 {
		look()
	}
	expect(1)
	answer = body("y")
	if o := look(); !o.Changed || string(o.Previous) != "x" {
		t.Errorf("got %+v", o)
	}
	expect(1)
	w.commit(w.mustLook())
	stamp.Size++
	if o := look(); o.Changed {
		t.Errorf("got %+v", o)
	}
	look()
	expect(1)
	w.record = nil
	stamp = state.FileStamp{}
	if o := look(); !o.First || !o.Changed {
		t.Errorf("no record: got %+v", o)
	}
}

func TestSelect(t *testing.T) {
	var answer http.HandlerFunc
	url := scripted(t, &answer)
	selecting := func(spec filter.Spec) *watcher {
		f, err := filter.Compile(spec)
		must(t, err)
		return watchURL(t, url, HTTPOptions{Select: f})
	}
	check := func(w *watcher, want, wantSelection string) {
		t.Helper()
		o := w.poll()
		if diff := cmp.Diff(want, string(o.Change)); diff != "" || o.Changed != (want != "") {
			t.Errorf("change (-want +got):\n%s", diff)
		}
		if o.Changed && string(o.Selection) != wantSelection {
			t.Errorf("selection: got %s, want %s", o.Selection, wantSelection)
		}
	}
	w := selecting(filter.Spec{JQ: ".v"})
	answer = body(`{"t":1, "v":{"b":1.0,"a":2}}`)
	check(w, `{"kind":"http","status":200,"current":{"t":1,"v":{"b":1.0,"a":2}},"selection":{"a":2,"b":1}}`, `{"a":2,"b":1}`)
	answer = body(`{"t":2, "v":{"b":1,"a":2.0}}`)
	check(w, "", "")
	answer = body(`{"t":3, "v":3}`)
	check(w, `{"kind":"http","status":200,"current":{"t":3,"v":3},"selection":3,"previous":{"t":1,"v":{"b":1.0,"a":2}},"previousSelection":{"a":2,"b":1}}`, "3")

	// Another filter of the same is no event, nor one whose selection is the same; the next look knows it.
	answer = body(`{"t":4, "v":3}`)
	record := w.record
	w = selecting(filter.Spec{JQ: ".v + 1"})
	w.record = record
	check(w, "", "")
	if w.record.Filter == record.Filter || string(w.record.Selection) != "4" {
		t.Errorf("another filter is not in the record: %+v", w.record)
	}
	answer = body(`{"t":5, "v":4}`)
	check(w, `{"kind":"http","status":200,"current":{"t":5,"v":4},"selection":5,"previous":{"t":4,"v":3},"previousSelection":4}`, "5")
	record = w.record
	w = selecting(filter.Spec{JQ: ".v"})
	w.record = record
	answer = body(`{"t":6, "v":5}`)
	check(w, `{"kind":"http","status":200,"current":{"t":6,"v":5},"selection":5,"previous":{"t":5,"v":4},"previousSelection":4}`, "5")

	// Nor is a filter that is taken away, or put there.
	record = w.record
	w = watchURL(t, url, HTTPOptions{})
	w.record = record
	check(w, "", "")
	if w.record.Filter != "" || w.record.Selection != nil {
		t.Errorf("no filter: %+v", w.record)
	}
	answer = body("{ \"t\": 6,\n\"v\": 5 }")
	record = w.record
	w = selecting(filter.Spec{Drop: []string{`"t": ?\d+`}})
	w.record = record
	check(w, "", "")
	answer = body("{ \"t\": 7,\n\"v\": 5 }")
	check(w, "", "")
	answer = body("{ \"t\": 7,\n\"v\": 6 }")
	check(w, `{"kind":"http","status":200,"current":{"t":7,"v":6},"selection":"{ ,\n\"v\": 6 }","previous":{"t":6,"v":5},"previousSelection":"{ ,\n\"v\": 5 }"}`, "{ ,\n\"v\": 6 }")
}

func TestSelectThatFails(t *testing.T) {
	f, err := filter.Compile(filter.Spec{JQ: ".v | select(. != null)"})
	must(t, err)
	var answer http.HandlerFunc = body(`{"v":1}`)
	w := watchURL(t, scripted(t, &answer), HTTPOptions{Select: f})
	w.poll()
	for _, text := range []string{`{"w":1}`, "", "<html>", `{"v":1`, "[]"} {
		answer = body(text)
		if o, err := w.look(); err == nil {
			t.Errorf("%q: got %+v, want an error", text, o)
		}
	}
	answer = body(`{"v":1.0}`)
	if o := w.poll(); o.Changed {
		t.Errorf("the first again: got %+v", o)
	}
}

// The same bytes are the same, whatever charset a header names: for a selection too, and after a restart.
func TestSelectUnderAnotherCharset(t *testing.T) {
	f, err := filter.Compile(filter.Spec{CSS: "p"})
	must(t, err)
	var answer http.HandlerFunc
	url := scripted(t, &answer)
	w := watchURL(t, url, HTTPOptions{Select: f})
	for i, kind := range []string{"text/html; charset=utf-8", "text/html; charset=iso-8859-1", ""} {
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			io.WriteString(w, "<p>Víctor</p>")
		}
		record := w.record
		w = watchURL(t, url, HTTPOptions{Select: f})
		w.record = record
		if o := w.poll(); o.Changed != (i == 0) {
			t.Errorf("content type %q: %+v", kind, o)
		}
	}
}
