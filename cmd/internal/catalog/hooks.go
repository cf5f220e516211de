package catalog

import (
	"errors"
	"fmt"

	"marbles/monitor"
	"marbles/runner"
)

// Hooks are what is told of how a workflow's or schedule's runs go. nil members: nobody, unless another level says so: a
// schedule's go before its workflow's, and those before the settings'.
type Hooks struct {
	OnFailure, OnRecovery, OnMissed *Hook
}

// Hook is told by a run of its own: of a workflow by its name, or of a command.
type Hook struct {
	Start    string           // workflow; "" for a command
	Workflow *runner.Workflow // of one step, for a command; nil for Start
}

// Ping is an outgoing request at the start and end of each of a key's runs. Ask URL for where one goes: the members hold
// those that stand in the definition, "" for none and for those that are kept elsewhere. No text shows more of one than
// its host.
type Ping struct {
	Start, Success, Fail string
	// Kept is where those are that stand elsewhere; nil for none.
	Kept *KeptPing
}

// KeptPing is where the URLs of a [Ping] are kept that do not stand in the definition.
type KeptPing struct {
	Base        monitor.Secret // from which all three are made
	Events      [3]monitor.Secret
	Credentials string // the directory of credentials
}

// The requests of a [Ping].
const (
	PingStart   = "start"
	PingSuccess = "success"
	PingFail    = "fail"
)

var errPing = errors.New("want an http or https URL to ping")

// IsZero reports whether nothing is asked for.
func (p Ping) IsZero() bool { return p == Ping{} }

// URL is where the request for an event goes, "" for none. A URL that is kept elsewhere is read anew each time.
func (p Ping) URL(event string) (string, error) {
	text, i := p.Success, 1
	switch event {
	case PingStart:
		text, i = p.Start, 0
	case PingFail:
		text, i = p.Fail, 2
	}
	if text != "" || p.Kept == nil {
		return text, nil
	}
	from, derived := p.Kept.Events[i], p.Kept.Base != (monitor.Secret{})
	if derived {
		from = p.Kept.Base
	}
	if from == (monitor.Secret{}) {
		return "", nil
	}
	text, err := from.Read(p.Kept.Credentials)
	if err == nil {
		err = checkPing(text)
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell where to ping: %w", err)
	}
	if derived && event != PingSuccess {
		text = below(text, event)
	}
	return text, nil
}
