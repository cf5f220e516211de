package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

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
		h, err := slogjournal.NewHandler(&slogjournal.Options{Level: l, ReplaceGroup: journalField, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			a.Key = "MARBLES_" + journalField(a.Key)
			return a
		}})
		if err == nil {
			return slog.New(h)
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
