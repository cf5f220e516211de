package filter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/itchyny/gojq"

	"marbles/state"
)

// Program is a compiled jq program. Make it with CompileProgram.
type Program struct {
	code   *gojq.Code
	memory uint64 // see guard
}

// Run applies the program to exactly one JSON value and returns its results in canonical form (state.CanonicalExact),
// none if it gives none. A repeated member, invalid UTF-8, an infinite result and one that is not a number are errors;
// so are results of more than 16 MiB.
//
// A number that is passed on keeps all its digits. Integers are exact in calculations and comparisons too. Other
// numbers are then read as 64-bit floating point, as jq does: 0.1 == 0.10000000000000000001.
func (p *Program) Run(ctx context.Context, input []byte) ([]jsontext.Value, error) {
	// What a result costs besides its text.
	const overhead = 32
	var found []jsontext.Value
	size := 0
	err := p.each(ctx, input, func(result jsontext.Value) error {
		if size += len(result) + overhead; size > maxSelection {
			return errSelection
		}
		found = append(found, result)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

var errSelection = errors.New("selects more than 16 MiB")

// one is the program's one result, or an array of several.
func (p *Program) one(ctx context.Context, input []byte) (jsontext.Value, error) {
	all := []byte{'['}
	n := 0
	err := p.each(ctx, input, func(result jsontext.Value) error {
		if len(all)+len(result) > maxSelection {
			return errSelection
		}
		if n++; n > 1 {
			all = append(all, ',')
		}
		all = append(all, result...)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("the jq program selects nothing")
	case n == 1:
		return all[1:], nil
	}
	return append(all, ']'), nil
}

// each calls f with every result.
func (p *Program) each(ctx context.Context, input []byte, f func(jsontext.Value) error) (err error) {
	g := newGuard(ctx, p.memory, input)
	value, err := decode(g, input)
	if err != nil {
		return err
	}
	// The interpreter panics where it contradicts itself; a page must not be able to end the process so.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the jq program breaks its interpreter: %v", r)
		}
	}()
	run := p.code.RunWithContext(&turns{Context: ctx, guard: g, last: time.Now()}, value)
	for {
		value, more := run.Next()
		if !more {
			return nil
		}
		if err, ok := value.(error); ok {
			return failure(g, err)
		}
		result, err := encode(g, value)
		if err != nil {
			return err
		}
		if err := f(result); err != nil {
			return err
		}
	}
}

// failure is what the interpreter's error says to the user; nil where the program ended itself with `halt`.
func failure(g *guard, err error) error {
	if g.err != nil {
		return fmt.Errorf("the jq program was stopped: %w", g.err)
	}
	if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
		return nil
	}
	return fmt.Errorf("the jq program fails: %w", err)
}

// turns is the context of a running program. The interpreter asks it before each of its instructions, and that is the
// one place in which a program can be watched.
type turns struct {
	context.Context

	guard *guard
	n     uint
	last  time.Time
}

// Done implements context.Context.
func (t *turns) Done() <-chan struct{} {
	// A text doubles within some ten instructions. Looking at memory that often would double the time of every
	// program, but what takes memory also takes time, and a clock is cheaper to read.
	const (
		often  = 8
		always = 1024
		long   = 500 * time.Microsecond
	)
	t.n++
	if t.n%often != 0 {
		return t.guard.done
	}
	now := time.Now()
	if t.n%always != 0 && now.Sub(t.last) < long {
		t.last = now
		return t.guard.done
	}
	t.last = now
	if t.guard.check() != nil {
		return closed()
	}
	return t.guard.done
}

// Err implements context.Context.
func (t *turns) Err() error {
	if t.guard.err == nil {
		t.guard.err = t.guard.ended()
	}
	return t.guard.err
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// canonical has exact numbers and sorted members. That it does not fail is so because encode wrote the text.
func canonical(text []byte) (jsontext.Value, error) {
	c, err := state.CanonicalExact(text)
	if err != nil {
		return nil, fmt.Errorf("the jq program's result: %w", err)
	}
	return c, nil
}
