package monitor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"marbles/state"
)

// maxSecret is the size of a secret in bytes, which is also how much a header of that kind may hold.
const maxSecret = 64 << 10

// Secret is a value that no text ever shows. One member is set at most; none is no value.
type Secret struct {
	Text       string
	File       string // the absolute name of a file that holds it
	Credential string // the name of a systemd credential
}

// String says of which kind a secret is, and never more.
func (s Secret) String() string {
	switch {
	case s.File != "":
		return "secret from a file"
	case s.Credential != "":
		return "secret from a credential"
	case s.Text != "":
		return "***"
	}
	return ""
}

// Format is String under every verb, also those that would print the members.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// GoString shows what String does, as LogValue, MarshalText and MarshalJSON do.
func (s Secret) GoString() string { return s.String() }

// LogValue is what a log shows.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is what any other encoding shows.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is what a record shows.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

func (s Secret) isZero() bool { return s == Secret{} }

// check is what can be known of a secret before it is read.
func (s Secret) check() error {
	set := 0
	for _, member := range []string{s.Text, s.File, s.Credential} {
		if member != "" {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("a secret is one of a text, a file and a credential")
	case s.File != "" && !filepath.IsAbs(s.File):
		return fmt.Errorf("secret file %s: its name must be absolute", s.File)
	case s.Credential != "":
		if err := state.PlainName("credential", s.Credential); err != nil {
			return fmt.Errorf("a credential must be named by a plain file name, not %q", s.Credential)
		}
	}
	return checkValue(s.Text)
}

// Read is the value as it is now, of any bytes: a file's or credential's, without one newline at its end. credentials is
// the directory of systemd's. Its errors name the place and never say what is in it.
func (s Secret) Read(credentials string) (string, error) {
	value, _, err := s.raw(credentials)
	return value, err
}

// read is a value that a header can have, as it is now: a secret that is replaced counts from the next look on.
func (s Secret) read(credentials string) (value string, open bool, err error) {
	value, open, err = s.raw(credentials)
	if err != nil || s.File == "" && s.Credential == "" {
		return value, open, err
	}
	if err := checkValue(value); err != nil {
		return "", open, fmt.Errorf("cannot use %s: %w", s.place(), err)
	}
	return value, open, nil
}

// place names where a secret is kept.
func (s Secret) place() string {
	if s.File != "" {
		return "secret file " + s.File
	}
	return "credential " + s.Credential
}

// raw is the value as it is now. One newline at its end is the editor's and dropped. open reports whether others than
// its owner and group may read a file.
func (s Secret) raw(credentials string) (value string, open bool, err error) {
	var data []byte
	name := s.place()
	switch {
	case s.File != "":
		var mode fs.FileMode
		if data, mode, err = readSmall(s.File, maxSecret); err == nil {
			open = mode.Perm()&0o004 != 0
		}
	case s.Credential != "":
		data, err = readCredential(credentials, s.Credential)
	default:
		return s.Text, false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot read %s: %w", name, pathless(err))
	}
	value = string(data)
	if cut, ok := strings.CutSuffix(value, "\n"); ok {
		value = strings.TrimSuffix(cut, "\r")
	}
	if value == "" {
		return "", open, fmt.Errorf("cannot use %s: it is empty", name)
	}
	return value, open, nil
}

// readCredential reads a file of the service's credentials directory, and nothing that lies elsewhere.
func readCredential(dir, name string) ([]byte, error) {
	if dir == "" {
		return nil, errors.New("the service was given no credentials (see LoadCredential= in systemd.exec)")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, _, err := readWhole(f, maxSecret)
	return data, err
}

// readSmall reads a regular file of at most limit bytes. A FIFO is not waited for.
func readSmall(name string, limit int64) ([]byte, fs.FileMode, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return readWhole(f, limit)
}

func readWhole(f *os.File, limit int64) ([]byte, fs.FileMode, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is over %s", limitText(limit))
	}
	if err != nil {
		return nil, 0, err
	}
	return data, info.Mode(), nil
}

// pathless is an error without the file's name, which its reader has already.
func pathless(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// checkValue is what holds for every value in a header: nothing that could end it (RFC 9110, 5.5).
func checkValue(value string) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("it has a control character (0x%02x) at byte %d", c, i+1)
		}
	}
	if len(value) > maxSecret {
		return fmt.Errorf("it is over %s", limitText(maxSecret))
	}
	return nil
}
