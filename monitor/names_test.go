package monitor

import (
	"encoding/base64"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestKeyOf(t *testing.T) {
	for _, tt := range []struct{ name, path, key string }{
		{"plain", "docs/a.md", "docs/a.md"},
		{"UTF-8", "Víctor", "Víctor"},
		{"backslash in UTF-8", `a\b`, `a\b`},
		{"two backslashes in UTF-8", `a\\b`, `a\\b`},
		{"newline", "new\nline.txt", "new\nline.txt"},
		{"Latin-1", "V\xedctor", `V\xedctor`},
		{"one bad byte", "\xff.txt", `\xff.txt`},
		{"backslash beside a bad byte", "a\\\xff", `a\\\xff`},
		{"UTF-8 that reads like a key", `\xff.txt`, `\\xff.txt`},
		{"UTF-8 that reads like that key", `\\xff.txt`, `\\\\xff.txt`},
		{"escape of a good byte", `\x41`, `\x41`},
		{"upper-case hex", `\xFF`, `\xFF`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"replacement character", "\ufffd", "\ufffd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := keyOf(tt.path); got != tt.key {
				t.Errorf("keyOf(%q): got %q, want %q", tt.path, got, tt.key)
			}
			if got := pathOf(tt.key); got != tt.path {
				t.Errorf("pathOf(%q): got %q, want %q", tt.key, got, tt.path)
			}
		})
	}
}

// That pathOf inverts keyOf also means that no two paths share a key.
func TestKeyOfIsReversible(t *testing.T) {
	bytes := rapid.SampledFrom([]string{`\`, `\\`, "x", "f", "e", "ff", "fe", "\xff", "\xfe", "\xc3", "\xa9", "é", "/", "a", "\n", `\xff`})
	rapid.Check(t, func(t *rapid.T) {
		path := ""
		for _, part := range rapid.SliceOfN(bytes, 0, 12).Draw(t, "parts") {
			path += part
		}
		key := keyOf(path)
		if !utf8.ValidString(key) {
			t.Fatalf("keyOf(%q) = %q is not UTF-8", path, key)
		}
		if got := pathOf(key); got != path {
			t.Fatalf("keyOf(%q) = %q, and back it is %q", path, key, got)
		}
		f := fileOf(path, "")
		if f.Bytes == "" && f.Path != path {
			t.Fatalf("%q is named %q without its bytes", path, f.Path)
		}
		if raw, err := base64.StdEncoding.DecodeString(f.Bytes); err != nil || f.Bytes != "" && string(raw) != path {
			t.Fatalf("bytes of %q: %q, %v", path, raw, err)
		}
	})
}
