package filter

import (
	"context"
	"testing"
	"time"

	"marbles/state"
)

// FuzzApply: no body and no spec panics or takes much longer than it may, and a selection is what it says it is.
func FuzzApply(f *testing.F) {
	for _, seed := range []struct{ jq, css, attribute, drop, body, contentType string }{
		{jq: ".a[] | .b", body: `{"a":[{"b":1.50},{"b":"\u00e9"}]}`},
		{jq: `[.. | numbers] | add, (map(tostring) | join(","))`, body: "[1e400, -0, 9007199254740993, 1e-7]"},
		{jq: `walk(if type == "object" then del(.t) else . end) | @base64d`, body: `"/w=="`},
		{css: "p > a:not([href^='#']), li:nth-child(2n+1):has(b)", attribute: "href", body: page, contentType: "text/html; charset=utf-16"},
		{css: "*", body: "<table><p><b><i></table><svg><script>&amp;<![CDATA[x]]></svg><template><p>\x00", contentType: "text/html; charset=gb18030"},
		{drop: `(?s)<!--.*?-->|\bnonce=\w+`, body: "<!-- x\n -->nonce=1"},
	} {
		f.Add(seed.jq, seed.css, seed.attribute, seed.drop, []byte(seed.body), seed.contentType)
	}
	f.Fuzz(func(t *testing.T, jq, css, attribute, drop string, body []byte, contentType string) {
		if len(jq)+len(css)+len(drop) > 1000 || len(body) > 100_000 {
			return
		}
		specs := []Spec{{JQ: jq}, {CSS: css, Attribute: attribute}}
		if drop != "" {
			specs = append(specs, Spec{Drop: []string{drop}})
		}
		for _, spec := range specs {
			filter, err := Compile(spec)
			if err != nil {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			start := time.Now()
			got, err := filter.Apply(ctx, body, contentType)
			cancel()
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%s took %s", filter, took)
			}
			if err != nil || !got.IsJSON {
				continue
			}
			if again, err := state.CanonicalExact(got.JSON); err != nil || string(again) != string(got.JSON) {
				t.Errorf("%s: %.100q is not canonical (%v)", filter, got.JSON, err)
			}
		}
	})
}
