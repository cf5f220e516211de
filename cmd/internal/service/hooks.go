package service

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

// The events that hooks are told of.
const (
	eventFailure  = "failure"
	eventRecovery = "recovery"
	eventMissed   = "missed"
)

const (
	okState     = "ok"
	failedState = "failed"
	// hookTries is how often something is told before it is given up.
	hookTries = 3
	hookWait  = 10 * time.Second // before the second try; twice as long before the third
)

// Kinds of runs that tell of other runs. Nobody is told of these.
const (
	kindHook = "hook"
	kindPing = "ping"
)

const (
	kindHandler   = "handler" // of the runs of a monitor's handlers
	triggerHealth = "health"  // of those of its on_down and on_up
)

// Hooks tell somebody of how runs go: on_failure, on_recovery and on_missed, once per change of state, and the pings of
// keys. Each is told by a recorded run of its own.
//
// What is to be told is on record, with the id of the run that will tell it, before that run starts: a crash at any point
// tells it neither never nor twice. A run that had settled when its service died is judged at the next start, from its
// key's record.
type Hooks struct {
	Worker   *runner.Worker
	Log      *slog.Logger
	Settings *settings.Settings
	Catalog  func(ws *state.Workspace) *catalog.Catalog // in force; nil where the workspace has none
	// Once says that this process does not stay: what fails is left to the service.
	Once bool

	wait sync.WaitGroup
	stop chan struct{}
	once sync.Once

	mu      sync.Mutex                  // guards what follows
	telling map[string]bool             // by workspace directory and owner; true: there is more to tell since
	judging map[string][]*state.RunFile // likewise: settled runs in their order; there is a goroutine where there is a member
}

// NewHooks makes hooks; their Worker is set before the first run.
func NewHooks(log *slog.Logger, s *settings.Settings, catalog func(*state.Workspace) *catalog.Catalog) *Hooks {
	return &Hooks{Log: log, Settings: s, Catalog: catalog, stop: make(chan struct{}), telling: map[string]bool{}, judging: map[string][]*state.RunFile{}}
}

// End waits until everything that is being told is a run of the worker's, or left to the next service.
func (h *Hooks) End() {
	h.once.Do(func() { close(h.stop) })
	h.wait.Wait()
}

// ended reports whether End was called.
func (h *Hooks) ended() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// Started is told by the worker of every run that begins; Settled of every one that settles. They do not block.
func (h *Hooks) Started(ws *state.Workspace, f *state.RunFile) {
	if f.Run.Timestamps.StartedAt != 0 && len(f.Suspensions) == 0 && tells(f) { // one that had parked has begun before
		h.ping(ws, f, catalog.PingStart)
	}
}

// Settled judges a run that has settled.
func (h *Hooks) Settled(ws *state.Workspace, f *state.RunFile) {
	if !tells(f) {
		return
	}
	switch f.Run.Status {
	case state.Complete:
		h.ping(ws, f, catalog.PingSuccess)
	case state.Failed:
		h.ping(ws, f, catalog.PingFail)
	default:
		return // somebody stopped it, which says nothing of how it goes
	}
	h.queue(ws, f)
}

// queue judges the runs of one owner in the order in which they settled, in the background.
func (h *Hooks) queue(ws *state.Workspace, f *state.RunFile) {
	id := ws.Dir() + "\x00" + h.owner(ws, f)
	h.mu.Lock()
	defer h.mu.Unlock()
	list, busy := h.judging[id]
	h.judging[id] = append(list, f)
	if busy {
		return
	}
	h.wait.Go(func() {
		for f := h.nextJudged(id); f != nil; f = h.nextJudged(id) {
			h.judge(ws, f, false)
		}
	})
}

func (h *Hooks) nextJudged(id string) *state.RunFile {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.judging[id]
	if len(list) == 0 {
		delete(h.judging, id)
		return nil
	}
	h.judging[id] = list[1:]
	return list[0]
}

// tells reports whether anybody is told of a run: not of those that tell, as a monitor's on_down does too, nor of parts of
// another one.
func tells(f *state.RunFile) bool {
	ext := f.Run.Extensions
	if ext.Kind == kindHook || ext.Kind == kindPing || ext.Trigger == triggerHealth {
		return false
	}
	return f.Run.Links == nil || f.Run.Links.ParentRunID == ""
}

// owner is whose state a run changes: its key's, where that ran it; a run that a monitor launched, or nobody's key, is its
// workflow's.
func (h *Hooks) owner(ws *state.Workspace, f *state.RunFile) string {
	ext := f.Run.Extensions
	if ext.TriggerID == "" {
		return ownerOfWorkflow(f.Run.Step)
	}
	if ext.Kind == kindHandler {
		return ext.TriggerID
	}
	if cat := h.Catalog(ws); ext.Trigger == "launch" || cat != nil && cat.Monitor(ext.TriggerID) != nil {
		return ownerOfWorkflow(f.Run.Step)
	}
	return ext.TriggerID
}

// ownerOfWorkflow is a workflow's name as a plain file name that no key can have.
func ownerOfWorkflow(name string) string {
	return "workflow:" + strings.NewReplacer("%", "%25", "/", "%2F", "\\", "%5C", "\x00", "%00").Replace(name)
}

// hook is what is told of an event: the key's own, else its workflow's, else the settings'; nil for none.
func (h *Hooks) hook(ws *state.Workspace, key, workflow, event string) *catalog.Hook {
	cat := h.Catalog(ws)
	if cat == nil {
		return nil
	}
	of := func(x catalog.Hooks) *catalog.Hook {
		return map[string]*catalog.Hook{eventFailure: x.OnFailure, eventRecovery: x.OnRecovery, eventMissed: x.OnMissed}[event]
	}
	if s := cat.Schedule(key); s != nil {
		if x := of(s.Hooks); x != nil {
			return x
		}
	}
	if w := cat.Workflow(workflow); w != nil {
		if x := of(w.Hooks); x != nil {
			return x
		}
	}
	text := map[string]string{
		eventFailure: h.Settings.OnFailure, eventRecovery: h.Settings.OnRecovery, eventMissed: h.Settings.OnMissed,
	}[event]
	if text == "" {
		return nil
	}
	name := "on_" + event
	return &catalog.Hook{Workflow: &runner.Workflow{Steps: []runner.Step{{Name: name, Command: runner.Command{Shell: text}}}}}
}

// any reports whether somebody is told of a key or workflow at all.
func (h *Hooks) any(ws *state.Workspace, key, workflow string) bool {
	return h.hook(ws, key, workflow, eventFailure) != nil || h.hook(ws, key, workflow, eventRecovery) != nil
}

// judge notes how a run went, and tells it where that is a change. Late is a run that may have been judged before, or may
// have been followed by one that was.
func (h *Hooks) judge(ws *state.Workspace, f *state.RunFile, late bool) {
	key, workflow, owner := f.Run.Extensions.TriggerID, f.Run.Step, h.owner(ws, f)
	if f.Run.Extensions.Kind == kindHandler {
		workflow = "" // it is named after its key, which may be a workflow's name too
	}
	if !h.any(ws, key, workflow) {
		return
	}
	ended := state.Stamp{Time: f.Run.Timestamps.Ended().Time()}
	now, event := okState, eventRecovery
	if f.Run.Status == state.Failed {
		now, event = failedState, eventFailure
	}
	err := ws.EditTold(context.Background(), owner, func(t *state.Told) (bool, error) {
		if late && !ended.After(t.Since.Time) {
			return false, nil
		}
		before := t.State
		if before == "" {
			before = okState // nobody needs to hear that the first run went well
		}
		if before == now {
			return false, nil
		}
		t.State, t.Run, t.Since = now, f.Run.ID, ended
		if h.hook(ws, key, workflow, event) == nil {
			return true, nil
		}
		input, err := h.inputOfRun(ws, f, event)
		if err != nil {
			return false, err
		}
		t.Owed = append(t.Owed, state.Owed{Event: event, Input: input, Run: state.NewRunID(time.Now())})
		return true, nil
	})
	if err != nil {
		h.Log.Error("what is to be told of a run cannot be recorded", "run", f.Run.ID, "error", err)
		return
	}
	h.wait.Go(func() { h.tell(ws, owner, key, workflow) })
}

// Missed is told of every stretch of slots that a schedule missed.
func (h *Hooks) Missed(ws *state.Workspace, s *catalog.Schedule, e state.SlotEntry) {
	if h.hook(ws, s.Key, s.Workflow, eventMissed) == nil {
		return
	}
	h.wait.Go(func() {
		err := ws.EditTold(context.Background(), s.Key, func(t *state.Told) (bool, error) {
			input, err := h.inputOfMissed(s, e)
			if err != nil {
				return false, err
			}
			t.Owed = append(t.Owed, state.Owed{Event: eventMissed, Input: input, Run: state.NewRunID(time.Now())})
			return true, nil
		})
		if err != nil {
			h.Log.Error("what is to be told of missed slots cannot be recorded", "key", s.Key, "error", err)
			return
		}
		h.tell(ws, s.Key, s.Key, s.Workflow)
	})
}

// Resume tells, in the background, what a process that died still owed, and judges the runs that had settled when it died.
func (h *Hooks) Resume(ws *state.Workspace) {
	h.wait.Go(func() { h.resume(ws) })
}

func (h *Hooks) resume(ws *state.Workspace) {
	cat := h.Catalog(ws)
	if cat == nil {
		return
	}
	for _, s := range cat.Schedules {
		if h.ended() {
			return
		}
		if !h.any(ws, s.Key, s.Workflow) {
			continue
		}
		rec, err := ws.Key(s.Key)
		if err != nil || rec == nil || rec.Run == "" {
			continue
		}
		if f, err := ws.Run(rec.Run); err == nil && (f.Run.Status == state.Complete || f.Run.Status == state.Failed) {
			h.judge(ws, f, true)
		}
	}
	owners, err := ws.ToldOwners()
	if err != nil {
		h.Log.Error("what is owed to be told cannot be listed", "workspace", ws.ID(), "error", err)
	}
	for _, o := range owners {
		t, err := ws.Told(o)
		if err != nil {
			h.Log.Error("what is owed to be told cannot be read", "owner", o, "error", err)
			continue
		}
		if len(t.Owed) == 0 {
			continue
		}
		key, workflow := o, ""
		if s := cat.Schedule(o); s != nil {
			workflow = s.Workflow
		} else if name, ok := strings.CutPrefix(o, "workflow:"); ok {
			key, workflow = "", strings.NewReplacer("%2F", "/", "%5C", "\\", "%00", "\x00", "%25", "%").Replace(name)
		}
		h.wait.Go(func() { h.tell(ws, o, key, workflow) })
	}
}

// tell tells what is owed, by one goroutine for each owner.
func (h *Hooks) tell(ws *state.Workspace, owner, key, workflow string) {
	id := ws.Dir() + "\x00" + owner
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, busy := h.telling[id]; busy {
		h.telling[id] = true
		return
	}
	for more := true; more; more = h.telling[id] {
		h.telling[id] = false
		h.mu.Unlock()
		h.tellAll(ws, owner, key, workflow)
		h.mu.Lock()
	}
	delete(h.telling, id)
}

// tellAll starts the runs that tell what is owed, one after the other, until nothing is, or this process ends.
func (h *Hooks) tellAll(ws *state.Workspace, owner, key, workflow string) {
	log := h.Log.With("owner", owner, "workspace", ws.ID())
	for {
		t, err := ws.Told(owner)
		if err != nil || t == nil || len(t.Owed) == 0 {
			return
		}
		o := t.Owed[0]
		hook := h.hook(ws, key, workflow, o.Event)
		if hook == nil { // it was taken out of the definitions
			h.told(ws, owner, o, true)
			continue
		}
		ok, err := h.run(ws, owner, hook, o)
		if errors.Is(err, runner.ErrDraining) || errors.Is(err, errTelling) {
			return // the next service tells it, or another process does just now
		}
		if err != nil {
			log.Error("hook failed", "event", o.Event, "run", o.Run, "try", o.Tries+1, "error", err)
		}
		if !h.told(ws, owner, o, ok) {
			return
		}
		if !ok && !errors.Is(err, errTried) && !h.pause(o.Tries) {
			return
		}
	}
}

// pause waits before the next try, and reports whether this process makes it.
func (h *Hooks) pause(tries int) bool {
	if h.Once {
		return false
	}
	t := time.NewTimer(hookWait << tries)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.stop:
		return false
	}
}

// told takes note of a try; it reports whether that could be written.
func (h *Hooks) told(ws *state.Workspace, owner string, o state.Owed, ok bool) bool {
	err := ws.EditTold(context.Background(), owner, func(t *state.Told) (bool, error) {
		if len(t.Owed) == 0 || t.Owed[0].Run != o.Run {
			return false, nil
		}
		first := &t.Owed[0]
		first.Tries++
		if ok || first.Tries >= hookTries {
			if !ok {
				h.Log.Error("hook is given up", "owner", owner, "event", o.Event, "tries", first.Tries)
			}
			t.Owed = t.Owed[1:]
			return true, nil
		}
		first.Run = state.NewRunID(time.Now())
		return true, nil
	})
	if err != nil {
		h.Log.Error("what was told cannot be recorded", "owner", owner, "error", err)
	}
	return err == nil
}

// errTelling says that the run which tells something is at work, or was when its process died.
var errTelling = errors.New("it is being told")

// errTried says that a process which has died made this try, and did not see its end.
var errTried = errors.New("the process that made this try died")

// run tells one thing, and waits for it. The run may be there already, from a process that died.
func (h *Hooks) run(ws *state.Workspace, owner string, hook *catalog.Hook, o state.Owed) (ok bool, err error) {
	wf := hook.Workflow
	if hook.Start != "" {
		cat := h.Catalog(ws)
		if cat == nil || cat.Workflow(hook.Start) == nil {
			return false, errors.New("no workflow named " + hook.Start)
		}
		wf = &cat.Workflow(hook.Start).Workflow
	} else {
		named := *wf
		named.Name = owner + ":on_" + o.Event
		wf = &named
	}
	input := o.Input.Clone()
	_ = input.Compact() // its record has indented it
	run, err := h.Worker.Start(runner.Launch{
		Workspace: ws, Workflow: wf, Input: input, Trigger: kindHook, Kind: kindHook, RunID: o.Run,
	})
	if errors.Is(err, fs.ErrExist) {
		f, err := ws.Run(o.Run)
		if err != nil {
			return false, err
		}
		if !f.Run.Status.Settled() {
			return false, errTelling
		}
		if f.Run.Status == state.Complete {
			return true, nil
		}
		return false, errTried
	}
	if err != nil {
		return false, err
	}
	res := run.Wait()
	if res.Status == state.Suspended {
		return true, nil
	}
	return res.Err() == nil, res.Err()
}
