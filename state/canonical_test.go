package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestCanonical(t *testing.T) {
	tests := []struct {
		name, text string
		want       string // Canonical
		exact      string // CanonicalExact where it differs; "error" for one
	}{
		{name: "object", text: ` { "b" : 1 , "a" : "x" } `, want: `{"a":"x","b":1}`},
		{name: "nested", text: `{"b":[{"d":1,"c":{"z":1,"y":[]}},2],"a":{}}`, want: `{"a":{},"b":[{"c":{"y":[],"z":1},"d":1},2]}`},
		{name: "sorted outside, not inside", text: `{"a":{"d":1,"c":2},"b":{"f":1,"e":{"h":1,"g":2}}}`, want: `{"a":{"c":2,"d":1},"b":{"e":{"g":2,"h":1},"f":1}}`},
		{name: "words", text: `[true,false,null]`, want: `[true,false,null]`},
		{name: "scalar", text: "\r\n\t 5 ", want: `5`},
		{name: "byte order mark", text: "\uFEFF{\"a\":1}", want: `{"a":1}`},
		{name: "order by code units", text: "{\"\ue000\":1,\"\U00010000\":2,\"\uffff\":3,\"\ud7ff\":4}", want: "{\"\ud7ff\":4,\"\U00010000\":2,\"\ue000\":1,\"\uffff\":3}"},
		{name: "order by second half", text: `{"\ud800\udc01":1,"\ud800\udc00":2}`, want: "{\"\U00010000\":2,\"\U00010001\":1}"},
		{name: "lone surrogate among pairs", text: `{"\ud800\ue000":1,"\ud800\udc00":2,"\ud800":3,"\ud800a":4}`, want: "{\"\\ud800\":3,\"\\ud800a\":4,\"\U00010000\":2,\"\\ud800\ue000\":1}"},
		{name: "a prefix comes first", text: `{"ab":1,"a":2,"":3}`, want: `{"":3,"a":2,"ab":1}`},
		{name: "digits as text", text: `{"10":1,"9":2}`, want: `{"10":1,"9":2}`},
		{name: "escapes in names", text: `{"\n":1,"\u0001":2,"\"":3,"!":4}`, want: `{"\u0001":2,"\n":1,"!":4,"\"":3}`},
		{name: "escapes", text: `"\u0041\/\u003c\u0022\u005c\b\f\n\r\t\u000B\u007f\u2028"`, want: "\"A/<\\\"\\\\\\b\\f\\n\\r\\t\\u000b\x7f\u2028\""},
		{name: "no HTML escapes", text: `"<>&"`, want: `"<>&"`},
		{name: "pair", text: `"\uD83D\uDE00"`, want: `"😀"`},
		{name: "lone surrogates", text: `["\uD83D","\uDE00\uD83D","\uD83Dx"]`, want: `["\ud83d","\ude00\ud83d","\ud83dx"]`},
		{name: "repeated member", text: `{"a":1,"b":2,"a":3}`, want: `{"a":3,"b":2}`, exact: "error"},
		{name: "repeated after unescaping", text: `{"a":1,"\u0061":2}`, want: `{"a":2}`, exact: "error"},
		{name: "repeated, in order", text: `{"a":{"c":1,"b":2},"a":{"c":3,"b":4}}`, want: `{"a":{"b":4,"c":3}}`, exact: "error"},

		{name: "one", text: `[1,1.0,1e0,10e-1,100E-2,0.1e+1]`, want: `[1,1,1,1,1,1]`},
		{name: "zero", text: `[0,-0,0.0,-0.0e5,0e999999999999999999999]`, want: `[0,0,0,0,0]`},
		{name: "fractions", text: `[0.1,0.1000,1.5,-2.50,123.456]`, want: `[0.1,0.1,1.5,-2.5,123.456]`},
		{name: "large", text: `[1e20,1e21,123456789012345680000,1.5e300]`, want: `[100000000000000000000,1e+21,123456789012345680000,1.5e+300]`},
		{name: "small", text: `[0.000001,1e-7,0.00000012,123e-20]`, want: `[0.000001,1e-7,1.2e-7,1.23e-18]`},
		{name: "2^53", text: `[9007199254740991,9007199254740992]`, want: `[9007199254740991,9007199254740992]`},
		{name: "beyond 2^53", text: `9007199254740993`, want: `9007199254740992`, exact: `9007199254740993`},
		{name: "eighteen nines", text: `999999999999999999`, want: `1000000000000000000`, exact: `999999999999999999`},
		{name: "many digits", text: `0.10000000000000000001`, want: `0.1`, exact: `0.10000000000000000001`},
		{name: "beyond the range", text: `[1e400,-1e400]`, want: `[null,null]`, exact: `[1e+400,-1e+400]`},
		{name: "below the range", text: `1e-400`, want: `0`, exact: `1e-400`},
		{name: "huge exponent", text: `1e1000000000`, want: `null`, exact: `1e+1000000000`},
		{name: "huge exponents that are equal", text: `[10e999999999,100000e+999999995]`, want: `[null,null]`, exact: `[1e+1000000000,1e+1000000000]`},
		{name: "exponent beyond an int64", text: `[-1.50e0999999999999999999999,1E-999999999999999999999]`, want: `[null,0]`, exact: `[-1.50e+999999999999999999999,1e-999999999999999999999]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Canonical([]byte(tt.text))
			if err != nil || string(got) != tt.want {
				t.Errorf("Canonical: got %s, %v, want %s", got, err, tt.want)
			}
			want := tt.exact
			if want == "" {
				want = tt.want
			}
			got, err = CanonicalExact([]byte(tt.text))
			if want == "error" {
				if err == nil {
					t.Errorf("CanonicalExact: got %s, want an error", got)
				}
			} else if err != nil || string(got) != want {
				t.Errorf("CanonicalExact: got %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `[`, `"`, `"\`, `"\u12"`, `"\x"`, `"\u00g0"`, "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`,
		`[1,]`, `[,]`, `[1 2]`, `{"a":1 "b":2}`, `{a:1}`, `{1:1}`, `1 2`, `{}{}`, `{}x`, `tru`, `nul`, `True`, `NaN`, `Infinity`, `-`, `+1`, `.5`, `1.`, `01`,
		`-01`, `1e`, `1e+`, `0x10`, `1_000`, `]`, `}`, `"a"b`, "\uFEFF", "\uFEFF\uFEFF1", "1\x00", "\v1", "// c\n1",
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		strings.Repeat(`{"a":`, 1_000_000),
	} {
		for name, fn := range map[string]func([]byte) ([]byte, error){"Canonical": Canonical, "CanonicalExact": CanonicalExact} {
			if got, err := fn([]byte(text)); err == nil {
				t.Errorf("%s(%.40q) is %.40q", name, text, got)
			}
		}
	}
}

// Which texts have one digest and which must not.
func TestCanonicalExactEquality(t *testing.T) {
	tests := []struct {
		a, b  string
		equal bool
	}{
		{`{"a":1,"b":2}`, "{ \"b\": 2,\r\n \"a\": 1 }", true},
		{`{"a":"A"}`, `{"a":"\u0041"}`, true},
		{`{"a":"<"}`, `{"a":"\u003c"}`, true},
		{`[1,2]`, `[2,1]`, false},
		{`1`, `1.0`, true},
		{`1`, `1e0`, true},
		{`1`, `10e-1`, true},
		{`0.1`, `0.1000`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`999999999999999999`, `1000000000000000000`, false},
		{`0.1`, `0.10000000000000000001`, false},
		{`1e400`, `1e401`, false},
		{`-0`, `0`, true},
		{`1`, `"1"`, false},
		{`null`, `"null"`, false},
		{`"\ud800"`, `"\ud801"`, false},
		{`"\ud800"`, `"\ufffd"`, false},
		{`"\ud800"`, `"\\ud800"`, false},
		{`1e99999999999999999999`, `1e99999999999999999998`, false},
		{`1e99999999999999999999`, `-1e99999999999999999999`, false},
		{`1e99999999999999999999`, `1e-99999999999999999999`, false},
		{`15e99999999999999999999`, `1.5e99999999999999999999`, false},
	}
	for _, tt := range tests {
		t.Run(tt.a+" "+tt.b, func(t *testing.T) {
			a, err := CanonicalExact([]byte(tt.a))
			noError(t, err)
			b, err := CanonicalExact([]byte(tt.b))
			noError(t, err)
			if bytes.Equal(a, b) != tt.equal {
				t.Errorf("%s and %s", a, b)
			}
		})
	}
}

// Digests of the first implementation.
func TestCanonicalDigests(t *testing.T) {
	for text, want := range map[string]string{
		`{"b":1,"a":"x"}`: "cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246",
		`"abc"`:           "6cc43f858fbb763301637b5af970e2a46b46f461f27e5a0f41e009c59b827b25",
		// The first digits are those of the keys review-1becafa2, shout-… and a-b-….
		`{"target":"packages"}`:         "1becafa2",
		`{"text":"a"}`:                  "6193c975",
		`{"text":"b"}`:                  "7b8de1c2",
		`{"b":1,"a":[true,null]}`:       "51705a2c",
		`["worker","session","hourly"]`: "21328a77be3590a54b37ae17",
	} {
		for name, fn := range map[string]func([]byte) ([]byte, error){"Canonical": Canonical, "CanonicalExact": CanonicalExact} {
			form, err := fn([]byte(text))
			noError(t, err)
			sum := sha256.Sum256(form)
			if got := hex.EncodeToString(sum[:]); !strings.HasPrefix(got, want) {
				t.Errorf("%s(%s): %s, want %s…", name, text, got, want)
			}
		}
	}
}

// Hostile bodies cost neither memory nor time beyond their size.
func TestCanonicalCost(t *testing.T) {
	deep := strings.Repeat(`{"b":0,"a":`, 9_000) + `"` + strings.Repeat("x", 1<<18) + `"` + strings.Repeat(`}`, 9_000)
	wide := "{" + strings.Repeat(`"k":{"b":1,"a":2},`, 20_000) + `"z":1}`
	for name, text := range map[string]string{
		"huge exponent": `[1e1000000000,1e-1000000000,1e999999999999999999]`,
		"long exponent": "1e" + strings.Repeat("9", 1<<20),
		"long number":   strings.Repeat("9", 1<<20) + "." + strings.Repeat("9", 1<<20),
		"deep objects":  deep,
		"wide objects":  wide,
	} {
		t.Run(name, func(t *testing.T) {
			got := testing.AllocsPerRun(1, func() {
				form, err := CanonicalExact([]byte(text))
				if name != "wide objects" {
					noError(t, err)
				} else if err == nil {
					t.Error("repeated members were let through")
				}
				if len(form) > len(text)+100 {
					t.Errorf("%d bytes became %d", len(text), len(form))
				}
				_, err = Canonical([]byte(text))
				noError(t, err)
			})
			if got > 200_000 { // of the wide one a few for each object
				t.Errorf("%v allocations", got)
			}
		})
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1.50,-0,1e21],"a":{"\ud800":"\u0041","é":null}}`, `{"a":1,"a":2}`, `"\ud83d\ude00"`, `1e400`, `1E+5`, `[[[]]]`,
		"\uFEFF1", `9007199254740993`, `0.1000`, "{\"\ue000\":1,\"\U00010000\":2}", `{"":{"b":{},"a":[{}]}}`, `1e99999999999999999999`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		form, err := Canonical(text)
		exact, exactErr := CanonicalExact(text)
		body := bytes.TrimPrefix(text, byteOrderMark)
		if len(text) < maxDepth {
			// Unlike ours, the standard library lets bytes that are not UTF-8 through.
			valid := stdjson.Valid(body) && jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
			if err == nil && !valid || err != nil && valid && !strings.Contains(err.Error(), "UTF-8") {
				t.Fatalf("valid is %t: %v", valid, err)
			}
		}
		if exactErr == nil && err != nil {
			t.Fatalf("only the exact form exists: %v", err)
		}
		if err != nil {
			return
		}
		again, err := Canonical(form)
		if err != nil || !bytes.Equal(form, again) {
			t.Errorf("the form of %s is %s, %v", form, again, err)
		}
		// RFC 8785 is the same but for -0, lone surrogates and repeated members.
		rfc := jsontext.Value(bytes.Clone(body))
		if rfc.Canonicalize() == nil && !bytes.Contains(rfc, []byte("-0")) && !bytes.Contains(form, []byte("null")) && !bytes.Equal(rfc, form) {
			t.Errorf("RFC 8785 has %s, we %s", rfc, form)
		}
		if exactErr != nil {
			return
		}
		again, err = CanonicalExact(exact)
		if err != nil || !bytes.Equal(exact, again) {
			t.Errorf("the exact form of %s is %s, %v", exact, again, err)
		}
		// What the exact form says is the same value: its doubles are those of the text.
		again, err = Canonical(exact)
		if err != nil || !bytes.Equal(form, again) {
			t.Errorf("through the exact form %s, directly %s, %v", again, form, err)
		}
	})
}

// FuzzExactNumbers compares texts of numbers with big rationals.
func FuzzExactNumbers(f *testing.F) {
	for _, pair := range [][2]string{{"1", "1.0"}, {"10e-1", "1e0"}, {"0.1", "0.10000000000000000001"}, {"-0", "0e5"}, {"1e21", "1000000000000000000000"}, {"1e-7", "0.0000001"}} {
		f.Add(pair[0], pair[1])
	}
	value := func(text string) (*big.Rat, []byte, error) {
		form, err := CanonicalExact([]byte(text))
		if err != nil {
			return nil, nil, err
		}
		if i := strings.IndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > 3 {
			return nil, nil, errors.New("too costly as a rational")
		}
		r, ok := new(big.Rat).SetString(strings.TrimSpace(strings.TrimPrefix(text, string(byteOrderMark))))
		if !ok {
			return nil, nil, errors.New("no number")
		}
		return r, form, nil
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, xForm, err := value(a)
		if err != nil {
			return
		}
		back, ok := new(big.Rat).SetString(string(xForm))
		if !ok || back.Cmp(x) != 0 {
			t.Errorf("%s became %s", a, xForm)
		}
		y, yForm, err := value(b)
		if err != nil {
			return
		}
		if (x.Cmp(y) == 0) != bytes.Equal(xForm, yForm) {
			t.Errorf("%s is %s, %s is %s", a, xForm, b, yForm)
		}
	})
}
