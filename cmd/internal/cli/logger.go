package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/lmittmann/tint"
	slogjournal "github.com/systemd/slog-journal"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// newLogger makes the log of the service and of roll. Format auto follows what stderr is: the system journal gets
// native fields, a terminal gets colour, anything else JSON lines.
func newLogger(w io.Writer, format, level string, getenv func(string) string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // settings accepted it
	if getenv("DEBUG_INVOCATION") != "" {
		l = slog.LevelDebug // systemd starts it again so, where the unit has RestartMode=debug
	}
	f, _ := w.(*os.File)
	if format == "auto" {
		switch {
		case f != nil && isJournal(f, getenv("JOURNAL_STREAM")):
			format = "journal"
		case f != nil && term.IsTerminal(int(f.Fd())):
			format = "text"
		default:
			format = "json"
		}
	}
	switch format {
	case "journal":
		h, err := journalHandler(l)
		if err == nil {
			return slog.New(readable{Handler: h})
		}
		log := slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
		log.Warn("cannot log to the system journal, using JSON", "error", err)
		return log
	case "text":
		color := f != nil && term.IsTerminal(int(f.Fd())) && getenv("NO_COLOR") == ""
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: l, NoColor: !color, TimeFormat: "2006-01-02 15:04:05"}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}))
}

// journalHandler sends records to the system journal, their attributes as fields: MARBLES_KEY, MARBLES_RUN and so on. The
// place in the code is in CODE_FILE, CODE_LINE and CODE_FUNC.
func journalHandler(level slog.Level) (slog.Handler, error) {
	h, err := slogjournal.NewHandler(&slogjournal.Options{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key = journalField(a.Key); len(groups) == 0 {
			a.Key = "MARBLES_" + a.Key
		}
		return a
	}, ReplaceGroup: func(name string) string { return "MARBLES_" + journalField(name) }})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// readable puts the attributes behind the message too, for people who read the journal as text: what a record is about is else
// in its fields alone.
type readable struct {
	slog.Handler
	said string // of WithAttrs
}

func (h readable) Handle(ctx context.Context, r slog.Record) error {
	said := h.said
	r.Attrs(func(a slog.Attr) bool {
		said += saying(a)
		return true
	})
	out := slog.NewRecord(r.Time, r.Level, r.Message+said, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h readable) WithAttrs(attrs []slog.Attr) slog.Handler {
	said := h.said
	for _, a := range attrs {
		said += saying(a)
	}
	return readable{h.Handler.WithAttrs(attrs), said}
}

func (h readable) WithGroup(name string) slog.Handler {
	return readable{h.Handler.WithGroup(name), h.said}
}

// saying is an attribute as text. The workspace is in its field alone: nobody knows it by its id.
func saying(a slog.Attr) string {
	value := a.Value.Resolve().String()
	if a.Key == "" || a.Key == "workspace" || value == "" {
		return ""
	}
	if strings.ContainsAny(value, " \t\n\"=") {
		value = strconv.Quote(value)
	}
	return " " + a.Key + "=" + value
}

// isJournal reports whether f is the stream to the journal that systemd named: "device:inode".
func isJournal(f *os.File, stream string) bool {
	var st unix.Stat_t
	if stream == "" || unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// journalField is a name as the journal wants it: upper case, digits and underscores.
func journalField(name string) string {
	b := []byte(name)
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			b[i] = c - 'a' + 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}
