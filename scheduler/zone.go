package scheduler

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sys "golang.org/x/sys/unix"
)

// Zone is the machine's time zone, read again when it changes (Go reads it once per process).
type Zone struct {
	root  string
	fixed bool // TZ decides: nothing is looked at again

	mu   sync.Mutex
	loc  *time.Location
	seen [2]fileID // what the present zone was read from: /etc/localtime, and what it leads to
	data string    // its content
}

// fileID tells whether a path leads to the same bytes as before.
type fileID struct {
	dev, ino, size, sec, nsec, csec, cnsec int64
}

// maxZoneFile is far above any zone's size; a larger file is no zone.
const maxZoneFile = 1 << 20

// NewZone reads the zone by TZ, else /etc/localtime, as Go does: a set TZ is fixed, an empty one or one that
// cannot be read is UTC, and so is a machine without /etc/localtime until it gets one. root is "" or a directory
// in place of / for tests.
func NewZone(root string) *Zone {
	z := &Zone{root: root, loc: time.UTC}
	if tz, ok := os.LookupEnv("TZ"); ok {
		z.fixed = true
		z.loc = z.named(strings.TrimPrefix(tz, ":"))
		return z
	}
	z.Refresh()
	return z
}

// Location is the zone as last read. It is the same pointer until the zone changes.
func (z *Zone) Location() *time.Location {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.loc
}

// Refresh looks whether it changed; it costs two stats when it did not. A zone that cannot be read, or that changes
// while it is read, leaves the old one in force and is tried again at the next look.
func (z *Zone) Refresh() (changed bool) {
	if z.fixed {
		return false
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	before, err := z.identify()
	if err != nil || before == z.seen {
		return false
	}
	loc, data, err := z.read()
	if err != nil {
		return false
	}
	// Someone may be writing the file in place: what was read counts only if it still stands.
	if after, err := z.identify(); err != nil || after != before {
		return false
	}
	z.seen = before
	if data == z.data && loc.String() == z.loc.String() {
		return false
	}
	z.loc, z.data = loc, data
	return true
}

func (z *Zone) localtime() string { return filepath.Join(z.root, "/etc/localtime") }

// identify looks at the link and at what it leads to. The link is looked at because two names of one zone file may
// be one inode.
func (z *Zone) identify() (ids [2]fileID, err error) {
	var link, file sys.Stat_t
	path := z.localtime()
	if err := sys.Lstat(path, &link); err != nil {
		return ids, err
	}
	if err := sys.Stat(path, &file); err != nil {
		return ids, err
	}
	// A pipe or a device in its place must not hold the loop up.
	if file.Mode&sys.S_IFMT != sys.S_IFREG || file.Size > maxZoneFile {
		return ids, errors.New("cannot read zone: not a zone file")
	}
	return [2]fileID{identity(&link), identity(&file)}, nil
}

func identity(st *sys.Stat_t) fileID {
	return fileID{
		dev: int64(st.Dev), ino: int64(st.Ino), size: st.Size,
		sec: int64(st.Mtim.Sec), nsec: int64(st.Mtim.Nsec), csec: int64(st.Ctim.Sec), cnsec: int64(st.Ctim.Nsec),
	}
}

func (z *Zone) read() (*time.Location, string, error) {
	data, err := os.ReadFile(z.localtime())
	if err != nil {
		return nil, "", err
	}
	loc, err := time.LoadLocationFromTZData(z.name(), data)
	return loc, string(data), err
}

// name is the zone's name by the link /etc/localtime, whose target lies in a zoneinfo directory
// (/usr/share/zoneinfo on Linux, /var/db/timezone/zoneinfo on macOS); else "Local".
func (z *Zone) name() string {
	target, err := os.Readlink(z.localtime())
	if err != nil {
		return "Local"
	}
	if name, ok := nameIn(target); ok {
		return name
	}
	// It may lead there over further links.
	if target, err = filepath.EvalSymlinks(z.localtime()); err == nil {
		if name, ok := nameIn(target); ok {
			return name
		}
	}
	return "Local"
}

func nameIn(path string) (string, bool) {
	_, name, ok := strings.Cut(path, "/zoneinfo/")
	return name, ok && name != ""
}

// named is the zone that TZ names. UTC stands in for one that cannot be read.
func (z *Zone) named(tz string) *time.Location {
	if tz == "" {
		return time.UTC
	}
	loc, err := time.LoadLocation(tz)
	if filepath.IsAbs(tz) {
		var data []byte
		if data, err = os.ReadFile(filepath.Join(z.root, tz)); err == nil {
			loc, err = time.LoadLocationFromTZData(tz, data)
		}
	}
	if err != nil {
		return time.UTC
	}
	return loc
}
