package transient

import (
	"strings"
	"testing"
)

func TestEnvTextRefuses(t *testing.T) {
	for name, test := range map[string]struct{ entry, want string }{
		"no name":         {"=se-cret", `cannot write variable ""`},
		"no value":        {"NAME", `cannot write variable "NAME"`},
		"a digit first":   {"1A=se-cret", `cannot write variable "1A"`},
		"a function":      {"BASH_FUNC_f%%=se-cret", `cannot write variable "BASH_FUNC_f%%"`},
		"bytes":           {"A=se-cret\xff", "cannot write variable A: it is not valid UTF-8"},
		"NUL":             {"A=se-cret\x00", "cannot write variable A: it has the control character U+0000"},
		"carriage return": {"A=se-cret\r", "U+000D"},
		"escape":          {"A=se-cret\x1b", "U+001B"},
		"delete":          {"A=se-cret\x7f", "U+007F"},
		"a noncharacter":  {"A=se-cret\ufdd0", "noncharacter U+FDD0"},
		"another":         {"A=se-cret\U0001ffff", "noncharacter U+1FFFF"},
		"too long":        {"A=se-cret" + strings.Repeat("x", maxVariable), "cannot write variable A: it is longer"},
	} {
		_, err := EnvText([]string{"FIRST=1", test.entry})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "se-cret") {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func TestEnvTextWrites(t *testing.T) {
	got, err := EnvText([]string{"A=", "B=a\"b\\c`d$e\nf", "C= é"})
	if want := "A=\"\"\nB=\"a\\\"b\\\\c\\`d\\$e\nf\"\nC=\" é\"\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
