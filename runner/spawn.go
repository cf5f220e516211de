package runner

import (
	"context"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// spawner starts processes, all of them on one thread of its own that lives until end.
//
// On Linux a child gets SIGKILL when the thread that started it ends, so that no process of a dead marbles goes on
// alone; the thread therefore must not be one the runtime may end. And it is never the main thread: the kernel lists
// children by the thread that started them and gives orphans to the main thread, so what is listed there was orphaned
// by a step (see kin).
type spawner struct {
	mu       sync.Mutex // guards what follows
	requests chan spawnRequest
	null     *os.File      // every child's standard input
	quit     chan struct{} // closed to end the thread
	ended    chan struct{} // closed when the thread has ended
	closed   bool
	children int           // processes at work
	quiet    chan struct{} // ends the reaper
	reaper   sync.WaitGroup
}

// spawnRequest asks for one process; without argv it asks only for an answer.
type spawnRequest struct {
	path  string
	argv  []string
	attr  *syscall.ProcAttr
	group *cgroup // this process goes there for the fork, where it is not nil
	reply chan spawnReply
}

type spawnReply struct {
	pid int
	err error
}

// thread returns the channel to the thread, which it starts where there is none.
func (s *spawner) thread() (chan<- spawnRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrDraining
	}
	if s.requests == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		becomeSubreaper()
		s.null = null
		s.requests = make(chan spawnRequest)
		s.quit = make(chan struct{})
		s.ended = make(chan struct{})
		started := make(chan struct{})
		go s.serve(started) // end waits for it
		<-started
	}
	return s.requests, nil
}

func (s *spawner) serve(started chan struct{}) {
	runtime.LockOSThread()
	if onMainThread() {
		// While this goroutine sits on the main thread, another one gets another.
		go s.serve(started)
		<-started
		runtime.UnlockOSThread()
		return
	}
	close(started)
	defer close(s.ended)
	for {
		select {
		case q := <-s.requests:
			var a spawnReply
			if len(q.argv) > 0 {
				back := q.group.visit()
				a.pid, a.err = syscall.ForkExec(q.path, q.argv, q.attr)
				back()
			}
			q.reply <- a
		case <-s.quit:
			return // while locked: that ends the thread, and with it what could not be killed
		}
	}
}

// start starts a process with an empty standard input and returns its pid. The caller waits for it, and then calls gone.
func (s *spawner) start(path string, argv []string, attr *syscall.ProcAttr, group *cgroup) (int, error) {
	requests, err := s.thread()
	if err != nil {
		return 0, err
	}
	attr.Files[0] = s.null.Fd()
	q := spawnRequest{path, argv, attr, group, make(chan spawnReply, 1)}
	requests <- q
	a := <-q.reply
	if a.err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.children++; s.children == 1 {
			s.quiet = make(chan struct{})
			quiet := s.quiet
			s.reaper.Go(func() { reapOrphans(quiet) })
		}
	}
	return a.pid, a.err
}

// gone says that a process that start returned has been reaped.
func (s *spawner) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.children--; s.children == 0 && !s.closed {
		close(s.quiet)
	}
}

// reapInterval is how often orphans that have exited are looked for while a step runs.
const reapInterval = time.Second

// ReapOrphans reaps what is left to this process as the init of a container, PID 1, until ctx is done. Whatever is executed
// in the container beside it leaves its orphans to it too, and nobody else would reap them. Elsewhere a worker does what is
// needed while a step of its runs.
func ReapOrphans(ctx context.Context) { reapOrphans(ctx.Done()) }

// reapOrphans reaps what orphans of a long step leave, as init would have done.
func reapOrphans(quiet <-chan struct{}) {
	tick := time.NewTicker(reapInterval)
	defer tick.Stop()
	for {
		select {
		case <-quiet:
			return
		case <-tick.C:
			reapZombies()
		}
	}
}

// ping asks the thread for an answer, where there is a thread.
func (s *spawner) ping(ctx context.Context) error {
	s.mu.Lock()
	requests, closed := s.requests, s.closed
	s.mu.Unlock()
	if requests == nil || closed {
		return nil
	}
	q := spawnRequest{reply: make(chan spawnReply, 1)}
	select {
	case requests <- q:
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-q.reply:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the thread. Nothing is at work any more.
func (s *spawner) end() {
	s.mu.Lock()
	first := !s.closed && s.requests != nil
	if first && s.children > 0 { // one that could not be killed
		close(s.quiet)
	}
	s.closed = true
	ended := s.ended
	s.mu.Unlock()
	if first {
		close(s.quit)
		s.null.Close()
	}
	if ended != nil {
		<-ended
	}
	s.reaper.Wait()
}
