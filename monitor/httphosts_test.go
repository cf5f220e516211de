package monitor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHostLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewHostLimit(2)
		order := make(chan int, 6)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				leave, err := l.enter(t.Context(), "h:80")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				order <- i
				time.Sleep(time.Duration(i) * time.Millisecond)
				leave()
			})
			time.Sleep(10 * time.Millisecond)
		}
		begin := time.Now()
		leave, err := l.enter(t.Context(), "other:80")
		must(t, err)
		if time.Since(begin) != 0 {
			t.Error("another host was waited for")
		}
		leave()
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := l.enter(short, "h:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		wg.Wait()
		for want := range 6 {
			if got := <-order; got != want {
				t.Errorf("in place %d came %d", want, got)
			}
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("six, two at once, took %s", took)
		}
		if len(l.hosts) != 0 {
			t.Errorf("kept %v", l.hosts)
		}
	})
}

// Requests that hang hold up the others at their host for as long as they are waited for, and their end frees no place
// a second time.
func TestHostLimitIsImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewHostLimit(2)
		enter := func() (leave func()) {
			leave, err := l.enter(t.Context(), "h:80")
			must(t, err)
			return leave
		}
		hung := []func(){enter(), enter()}
		begin := time.Now()
		quick := []func(){enter(), enter()}
		if took := time.Since(begin); took != hostPatience {
			t.Errorf("waited %s behind two that hang", took)
		}
		for _, leave := range hung {
			leave()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.enter(short, "h:80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v where two run", err)
		}
		for _, leave := range quick {
			leave()
		}
		if len(l.hosts) != 0 {
			t.Errorf("kept %v", l.hosts)
		}
	})
}

// Those that give up while it becomes their turn lose no place.
func TestHostLimitUnderCancellation(t *testing.T) {
	l := NewHostLimit(3)
	var running, most atomic.Int32
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%17)*100*time.Microsecond)
			defer cancel()
			leave, err := l.enter(ctx, "h:80")
			if err != nil {
				return
			}
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(100 * time.Microsecond)
			running.Add(-1)
			leave()
		})
	}
	wg.Wait()
	if most.Load() > 3 || len(l.hosts) != 0 {
		t.Errorf("%d at once, left %v", most.Load(), l.hosts)
	}
}

// A host that hangs holds up nothing but what asks it, and that no longer than its own deadline.
func TestHangingHost(t *testing.T) {
	limit := NewHostLimit(1)
	slow := watchURL(t, "http://"+hanging(t, ""), HTTPOptions{Hosts: limit})
	quick := watchURL(t, serve(t, body("x")), HTTPOptions{Hosts: limit})
	var wg sync.WaitGroup
	begin := time.Now()
	for range 5 {
		wg.Go(func() {
			_, err := slow.source.Look(t.Context(), Committed{}, LookOptions{Timeout: 300 * time.Millisecond})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
	for range 20 {
		quick.poll()
	}
	if took := time.Since(begin); took > 250*time.Millisecond {
		t.Errorf("20 looks elsewhere took %s", took)
	}
	wg.Wait()
	if took := time.Since(begin); took > 600*time.Millisecond {
		t.Errorf("five looks of 300 ms each took %s", took)
	}
	limit.CloseIdle()
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{" 120 ", "", 2 * time.Minute},
		{"86401", "", 24 * time.Hour},
		{"99999999999999999999999", "", 24 * time.Hour},
		{"-1", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"Mon, 01 Jun 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Mon, 01 Jun 2026 12:00:30 GMT", "Mon, 01 Jun 2026 12:00:20 GMT", 10 * time.Second},
		{"Mon, 01 Jun 2026 11:59:30 GMT", "", 0},
		{"Monday, 01-Jun-26 12:00:30 GMT", "", 30 * time.Second},
		{"Tue, 01 Jun 2027 12:00:30 GMT", "nonsense", 24 * time.Hour},
	} {
		h := http.Header{"Retry-After": {tt.value}, "Date": {tt.date}}
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%q at %q: got %s, want %s", tt.value, tt.date, got, tt.want)
		}
	}
	var answer http.HandlerFunc
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	for code, want := range map[int]time.Duration{429: 7 * time.Second, 503: 7 * time.Second, 500: 0, 404: 0} {
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
		}
		_, err := w.look()
		var retry *RetryError
		if errors.As(err, &retry); err == nil || retry == nil != (want == 0) || retry != nil && retry.After != want {
			t.Errorf("%d: got %v, %+v", code, err, retry)
		}
		if want := fmt.Sprintf("cannot fetch %s: HTTP %d", w.source, code); err.Error() != want {
			t.Errorf("got %s, want %s", err, want)
		}
	}
}

// Sources that have the same options share their connections, and a kept one that was closed is no failed look.
func TestConnectionsAreKept(t *testing.T) {
	limit := NewHostLimit(0)
	t.Cleanup(limit.CloseIdle)
	var remotes []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		remotes = append(remotes, r.RemoteAddr)
		if len(remotes) == 3 {
			w.Header().Set("Connection", "close")
		}
	})
	for i := range 5 {
		watchURL(t, fmt.Sprintf("%s/%d", url, i), HTTPOptions{Hosts: limit}).poll()
	}
	if remotes[0] != remotes[1] || remotes[1] != remotes[2] || remotes[2] == remotes[3] || remotes[3] != remotes[4] {
		t.Errorf("connections came from %v", remotes)
	}
	if len(limit.clients) != 1 {
		t.Errorf("%d clients for equal options", len(limit.clients))
	}
	remotes = nil
	for range 2 {
		watchURL(t, url, HTTPOptions{Hosts: limit, Method: "POST"}).poll()
	}
	if remotes[0] == remotes[1] {
		t.Error("a POST was sent over a kept connection")
	}
}

// A kept connection that its server closed meanwhile, without a word, is no failed look.
func TestConnectionsThatWereClosed(t *testing.T) {
	s := httptest.NewServer(body("x"))
	t.Cleanup(s.Close)
	for _, method := range []string{"GET", "POST"} {
		w := watchURL(t, s.URL, HTTPOptions{Method: method})
		for range 10 {
			w.poll()
			s.CloseClientConnections()
		}
	}
}
