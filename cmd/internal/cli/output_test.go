package cli

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestSafe(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "run rn-1 failed: exited with code 7", "run rn-1 failed: exited with code 7"},
		{"lines", "one\n\x1b[31mtwo\n", "one\n" + `\x1b[31mtwo` + "\n"},
		{"not UTF-8", "caf\xe9", `caf\xe9`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := safe(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTablesAreSafe(t *testing.T) {
	var b bytes.Buffer
	if err := paint(false).table(&b, [][]string{{"KEY", "NOTE"}, {"a\x1bb", "x\ny"}}); err != nil {
		t.Fatal(err)
	}
	if err := paint(false).facts(&b, [][]string{{"key", "a\x1bb"}}); err != nil {
		t.Fatal(err)
	}
	if want := "KEY     NOTE\na\\x1bb  x\\ny\nkey  a\\x1bb\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestPrintJSONTakesAnyBytes(t *testing.T) {
	var b bytes.Buffer
	err := printJSON(&b, struct {
		Name  string
		Input jsontext.Value
	}{"caf\xe9", jsontext.Value("{\"a\":\"\xff\"}")})
	if want := "{\n  \"Name\": \"caf\ufffd\",\n  \"Input\": {\n    \"a\": \"\ufffd\"\n  }\n}\n"; err != nil || b.String() != want {
		t.Errorf("got %q, %v; want %q", b.String(), err, want)
	}
}
