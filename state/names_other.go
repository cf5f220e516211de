//go:build !linux

package state

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// readNames lists the names in a directory that end in ext, without it, in no order.
func readNames(dir, ext string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names := all[:0]
	for _, name := range all {
		if stem, ok := strings.CutSuffix(name, ext); ok && stem != "" {
			names = append(names, stem)
		}
	}
	return names, nil
}
