package monitor

import "sync"

// A pool does tasks until there are none left, the latest first: a walk then goes down before it goes on, and holds few
// directories open.
type pool struct {
	do      func(task, *reader)
	most    int // workers at once
	workers sync.WaitGroup

	mu    sync.Mutex // guards what follows
	more  *sync.Cond
	tasks []task
	busy  int // tasks being done
	free  int // workers waiting
	count int // workers started
}

func newPool(most int, do func(task, *reader)) *pool {
	p := &pool{do: do, most: most}
	p.more = sync.NewCond(&p.mu)
	return p
}

// add adds tasks; the last is done first. It may be called before run, or by a task.
func (p *pool) add(tasks ...task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = append(p.tasks, tasks...)
	for range min(len(p.tasks)-p.free, p.most-p.count) {
		p.count++
		p.workers.Go(p.work)
	}
	if p.free > 0 {
		p.more.Broadcast()
	}
}

// wait returns when all is done.
func (p *pool) wait() { p.workers.Wait() }

func (p *pool) work() {
	var r reader
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.tasks) == 0 {
			if p.busy == 0 {
				p.more.Broadcast()
				return
			}
			p.free++
			p.more.Wait()
			p.free--
		}
		last := len(p.tasks) - 1
		t := p.tasks[last]
		p.tasks[last] = task{}
		p.tasks = p.tasks[:last]
		p.busy++
		p.mu.Unlock()
		p.do(t, &r)
		p.mu.Lock()
		p.busy--
	}
}
