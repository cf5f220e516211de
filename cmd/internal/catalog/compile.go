package catalog

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/monitor/filter"
	"marbles/runner"
)

// program is a jq program as the runner takes it.
type program struct {
	text string
	p    *filter.Program
}

func (p program) String() string { return p.text }

func (p program) Run(ctx context.Context, input []byte) ([]jsontext.Value, error) {
	return p.p.Run(ctx, input)
}

// Compile makes a program of its text, as the runner asks for it.
func Compile(text string) (runner.Program, error) {
	p, err := filter.CompileProgram(text)
	if err != nil {
		return nil, err
	}
	return program{text, p}, nil
}
