package catalog

import (
	"errors"
	"regexp"
	"testing"
)

// TestEveryWordMayBeWrong puts something else in the place of each word of a file that says all there is to say, one
// after the other. It loads or is refused, with places, and nothing panics.
func TestEveryWordMayBeWrong(t *testing.T) {
	text := release + `  more:
    run: x
    input: {kind: daily}
    input_schema: {required: [kind], properties: {kind: {enum: [daily], $ref: "#/$defs/a"}}, $defs: {a: {type: string}}, additionalProperties: false}
    secrets: {A: {env: B}, C: {credential: d}}
    on_failure: {run: x, secrets: [A], timeout: 5s}
    on_missed: {start: child}
schedules:
- {run: more, every: 1h, input: {kind: daily}, ping: {fail: {file: /x}, start: "http://x/"}, on_recovery: [a]}
monitors:
- {watch: "http://x/", do: {run: x, retry: {attempts: 2}}, method: POST, body: x, auth: {bearer: {credential: x}}, ping: {credential: x}}
- {watch: a, do: x, start: more, settle: {quiet: 500ms, max_wait: 2s}}
`
	words := regexp.MustCompile(`[^\s{}\[\],:]+`).FindAllStringIndex(text, -1)
	if len(words) < 250 {
		t.Fatalf("only %d words", len(words))
	}
	s := write(t, nil)
	if _, err := loadText(s, text); err != nil {
		t.Fatal(err)
	}
	for _, at := range words {
		for _, odd := range []string{"", "5", "[]", "{}", `""`, "x"} {
			changed := text[:at[0]] + odd + text[at[1]:]
			_, err := loadText(s, changed)
			var all Diagnostics
			if err != nil && (!errors.As(err, &all) || len(all) == 0) {
				t.Fatalf("%s instead of %s: got a %T: %v", odd, text[at[0]:at[1]], err, err)
			}
			for _, d := range all {
				if d.Line == 0 || d.Column == 0 || d.Message == "" {
					t.Errorf("%s instead of %s: no place: %v", odd, text[at[0]:at[1]], d)
				}
			}
		}
	}
}

// loadText loads a text as the only file of a source, without writing it.
func loadText(s Source, text string) (*Catalog, error) {
	f := parseFile("a.yaml", []byte(text), 0, s, newLoading(Options{}))
	c := new(Catalog)
	k := linker{Catalog: c, files: []*file{f}}
	k.link()
	if errs := append(f.errors, k.errors...); len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}
