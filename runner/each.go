package runner

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// maxItems is how many items a step may have: each has a record in the run file.
const maxItems = 10_000

// each does a step for every item of its list, and gives the list of results.
func (s *step) each(ctx context.Context, input []member) event {
	items, err := s.items(ctx, input)
	if err != nil {
		return s.ended(ctx, failed("Error", "has no list: %v", err))
	}
	s.r.journal.line(s.Name, fmt.Sprintf("started for %d items", len(items)))
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	events := make([]event, len(items))
	done := s.itemsDone(len(items))
	next := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex // guards first
	first := -1       // the item that failed first
	for k := range min(max(s.Each.Parallel, 1), len(items)) {
		wait.Go(func() {
			for i := range next {
				if events[i] = s.forItem(work, input, i, items[i], k, done[i]); events[i].why != nil {
					mu.Lock()
					if first < 0 && events[i].why != errSibling {
						first = i
					}
					mu.Unlock()
					if !s.ContinueOnError {
						stop(errSibling)
					}
				}
			}
		})
	}
	begun := 0
feed:
	for ; begun < len(items); begun++ {
		select {
		case next <- begun:
		case <-work.Done():
			break feed
		}
	}
	close(next)
	wait.Wait()
	return s.together(ctx, events[:begun], len(items), first)
}

// together is the report of all items: those that began, of so many.
func (s *step) together(ctx context.Context, events []event, all, first int) event {
	var out event
	results := make([]jsontext.Value, 0, all)
	dropped := false
	for _, ev := range events {
		out.recs = append(out.recs, ev.recs...)
		out.waits = append(out.waits, ev.waits...)
		out.closes = append(out.closes, ev.closes...)
		out.parked = out.parked || ev.parked
		dropped = dropped || ev.dropped
		if n := len(ev.recs); n > 0 && ev.recs[n-1].Result != nil {
			results = append(results, ev.recs[n-1].Result)
		} else {
			results = append(results, jsontext.Value("null"))
		}
	}
	switch {
	case first >= 0:
		s.dropNew(out.waits)
		why := *events[first].why
		if !why.whole {
			why.err.Message = fmt.Sprintf("item %d %s", first, why.err.Message)
		}
		out.why, out.parked, out.waits = &why, false, nil
	case dropped, len(events) < all && context.Cause(ctx) == error(errPaused):
		s.dropNew(out.waits)
		out.dropped = true
		return out
	case out.parked:
		return out
	case len(events) < all:
		out.why = asStopped(context.Cause(ctx))
	default:
		s.rec.Result = append(append(jsontext.Value{'['}, bytes.Join(raw(results), []byte(","))...), ']')
	}
	s.finish(out.why)
	out.recs = append(out.recs, s.rec)
	return out
}

// dropNew ends the units that items were about to wait for.
func (s *step) dropNew(waits []state.Suspension) {
	for i := range waits {
		if u := waits[i].Unit(); u != nil {
			s.r.dropUnit(*u)
		}
	}
}

func raw(values []jsontext.Value) [][]byte {
	list := make([][]byte, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// itemsDone are the records of items that were complete before the run parked.
func (s *step) itemsDone(n int) []*state.StepRecord {
	done := make([]*state.StepRecord, n)
	for i := range s.past.items {
		rec := &s.past.items[i]
		if *rec.Item < n && rec.Status == state.Complete {
			done[*rec.Item] = rec
		}
	}
	return done
}

// forItem does the step for one item, by the worker k of this step.
func (s *step) forItem(ctx context.Context, input []member, i int, item jsontext.Value, k int, done *state.StepRecord) event {
	if done != nil {
		return event{recs: []state.StepRecord{*done}}
	}
	if ctx.Err() != nil {
		return event{why: asStopped(context.Cause(ctx)), dropped: context.Cause(ctx) == error(errPaused)}
	}
	one := *s
	one.item = &i
	one.rec = state.StepRecord{Name: s.Name, Item: &i, Status: state.Running, StartedAt: state.Millis(time.Now().UnixMilli())}
	one.scratch = s.scratch + "." + strconv.Itoa(k)
	one.past = s.past.ofItem(i)
	one.more = append(s.more[:len(s.more):len(s.more)], "MARBLES_ITEM="+itemText(item), "MARBLES_INDEX="+strconv.Itoa(i))
	input = overlay(input, []member{{"item", item}, {"index", jsontext.Value(strconv.Itoa(i))}})
	return one.once(ctx, input)
}

// itemText is an item as a variable: a text as it is, else JSON; nothing where a variable cannot hold it.
func itemText(item jsontext.Value) string {
	text := string(item)
	if item.Kind() == '"' {
		if b, err := jsontext.AppendUnquote(nil, item); err == nil {
			text = string(b)
		}
	}
	if len(text) > maxInputEnv || bytes.IndexByte([]byte(text), 0) >= 0 {
		return ""
	}
	return text
}

// ofItem is what is known of one item.
func (p past) ofItem(i int) past {
	var own past
	path := strconv.Itoa(i)
	for _, w := range p.waits {
		if len(w.StepPath) > 2 && w.StepPath[2] == path {
			own.waits = append(own.waits, w)
		}
	}
	return own
}

// items is the list that the step is done for.
func (s *step) items(ctx context.Context, input []member) ([]jsontext.Value, error) {
	list := s.Each.List
	if s.Each.Program != nil {
		values, err := s.program(ctx, s.Each.Program, input)
		if err != nil {
			return nil, err
		}
		if len(values) != 1 {
			return nil, fmt.Errorf("its program gave %d values, not one array", len(values))
		}
		list = values[0]
	}
	if list.Kind() != '[' {
		return nil, fmt.Errorf("want an array, not %s", kindName(list.Kind()))
	}
	d := jsontext.NewDecoder(bytes.NewReader(list))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var items []jsontext.Value
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if len(items) == maxItems {
			return nil, fmt.Errorf("it has more than %d items", maxItems)
		}
		items = append(items, v.Clone())
	}
	return items, nil
}
