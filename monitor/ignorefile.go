package monitor

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

const ignoreName = ".gitignore"

// readIgnore reads the .gitignore in dir. One that is written meanwhile is read once more: half of its rules would let
// files in that it ignores.
func (d *disk) readIgnore(ctx context.Context, dir int) (ignoreFile, error) {
	for tries := 0; ; tries++ {
		file, err := d.tryIgnore(ctx, dir)
		if err != errChanging || tries == 2 {
			return file, err
		}
	}
}

func (d *disk) tryIgnore(ctx context.Context, dir int) (ignoreFile, error) {
	observed := d.now()
	var before, after unix.Stat_t
	fd, err := d.open(dir, ignoreName, &before)
	if err != nil {
		return ignoreFile{}, err
	}
	defer unix.Close(fd)
	if before.Size > maxIgnoreFile {
		return ignoreFile{}, fmt.Errorf("it is larger than %s", limitText(maxIgnoreFile))
	}
	file := ignoreFile{file: known{sig: signatureOf(&before), read: seconds(observed)}}
	if racy(&before, observed) {
		file.file.state = suspect
	}
	text := make([]byte, before.Size+1) // one more shows that it grew
	n := 0
	for n < len(text) {
		if err := ctx.Err(); err != nil {
			return ignoreFile{}, err
		}
		more, err := d.read(fd, text[n:])
		if err != nil {
			return ignoreFile{}, err
		}
		if more <= 0 {
			break
		}
		n += more
	}
	if err := d.fstat(fd, &after); err != nil {
		return ignoreFile{}, err
	}
	if signatureOf(&after) != file.file.sig {
		return ignoreFile{}, errChanging
	}
	file.rules = parseIgnore(text[:n])
	return file, nil
}
