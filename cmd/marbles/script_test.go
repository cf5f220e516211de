package main

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"marbles": main})
}

// TestScripts runs the scripts in testdata/script over the real program, each in a folder and a home of its own, in UTC.
// Beside testscript's commands there are:
//
//	exitcode N command [args]   run it; it must exit with N
//	await regexp file           wait until a file, or one that a glob matches, holds it
//	copytree from to            copy a folder of the repository, as examples/tour
//	mode perm file              a file's permissions, as 0600
//	expand file                 replace $URL in a file by the address of a server of the folder www
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("TZ", "UTC")
			server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(e.WorkDir, "www"))))
			e.Defer(server.Close)
			e.Setenv("URL", server.URL)
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exitcode": exitcode,
			"await":    await,
			"copytree": copytree,
			"mode":     mode,
			"expand":   expand,
		},
		RequireUniqueNames: true,
	})
}

func wantArgs(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "exitcode N command [args]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("cannot run %q: %v", args[1:], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%q exits with %d, want %d", args[1:], got, want)
	}
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "await regexp file")
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		names, err := filepath.Glob(ts.MkAbs(args[1]))
		ts.Check(err)
		for _, name := range names {
			// It may be gone again, or not there yet.
			if data, err := os.ReadFile(name); err == nil && want.Match(data) {
				return
			}
		}
	}
	ts.Fatalf("no %s holds %q after %s", args[1], args[0], patience)
}

func copytree(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "copytree from to")
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(filepath.Join("..", "..", args[0]))))
}

func mode(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "mode perm file")
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm(); got != fs.FileMode(want) {
		ts.Fatalf("%s has mode %04o, want %04o", args[1], got, want)
	}
}

func expand(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 1, "expand file")
	name := ts.MkAbs(args[0])
	data, err := os.ReadFile(name)
	ts.Check(err)
	ts.Check(os.WriteFile(name, []byte(strings.ReplaceAll(string(data), "$URL", ts.Getenv("URL"))), 0o600))
}
