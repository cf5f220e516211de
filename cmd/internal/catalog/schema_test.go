package catalog

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestInputSchema(t *testing.T) {
	c := load(t, map[string]string{"a.yaml": `workflows:
  report:
    run: x
    input: {kind: daily, count: 9007199254740993}
    input_schema:
      type: object
      required: [kind, to]
      additionalProperties: false
      properties:
        kind: {enum: [daily, monthly]}
        to: {$ref: "#/$defs/address"}
        count: {type: integer, maximum: 9007199254740994}
        tree: {$ref: "#/$defs/tree"}
      $defs:
        address: {type: string, pattern: "@", x-note: ours}
        tree: {type: object, properties: {left: {$ref: "#/$defs/tree"}, a/b: true}, additionalProperties: {$ref: "#/$defs/tree/properties/a~1b"}}
schedules:
  - {run: report, every: 1h, input: {to: a@b}}
`})
	s := c.Workflow("report").Schema
	for _, tt := range []struct{ input, want string }{
		{`{"kind":"daily","to":"a@b"}`, ""},
		{`{"kind":"daily","to":"a@b","count":9007199254740993,"tree":{"left":{"left":{}}}}`, ""},
		{`{"kind":"daily","to":"a@b","count":9007199254740995}`, "count: maximum: 9007199254740995 is greater than 9007199254740994"},
		{`{"kind":"daily","to":"a@b","count":"5"}`, `count: type: 5 has type "string", want "integer"`},
		{`{"kind":"daily"}`, `required: missing properties: ["to"]`},
		{`{"kind":"yearly","to":"a@b"}`, "kind: enum: yearly does not equal any of: [daily monthly]"},
		{`{"kind":"daily","to":"nobody"}`, `$defs/address: pattern: "nobody" does not match regular expression "@"`},
		{`{"kind":"daily","to":"a@b","tree":{"left":5}}`, `$defs/tree: type: 5 has type "integer", want "object"`},
		{`{"kind":"daily","to":"a@b","too":"c"}`, `unexpected additional properties ["too"]`},
		{`[]`, "it is no object: json: cannot unmarshal array into Go value of type map[string]interface {}"},
	} {
		got := ""
		if err := s.Validate(jsontext.Value(tt.input)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.input, got, tt.want)
		}
	}
	if err := s.Validate(nil); err == nil {
		t.Error("no input at all lacks what is required")
	}
}

func TestSchemaErrors(t *testing.T) {
	tests := []struct {
		name, schema string
		want         []string
	}{
		{"any input", "{}", nil},
		{"no mapping", "true", []string{"input_schema: want a JSON Schema: a mapping such as {required: [kind], properties: {kind: {enum: [daily, monthly]}}}, got the boolean true"}},
		{"keywords", `{requird: [a], properties: {a: {tpye: string}, b: 5}, allOf: {}, $id: x, $schema: "http://json-schema.org/draft-07/schema#", items: [5]}`, []string{
			`input_schema.requird: JSON Schema has no keyword "requird" that is understood here (did you mean "required"?)`,
			`input_schema.properties.a.tpye: JSON Schema has no keyword "tpye" that is understood here (did you mean "type"?)`,
			"input_schema.properties.b: want a schema: a mapping, true or false, got the number 5",
			"input_schema.allOf: want a list of schemas, got a mapping",
			`input_schema."$id": JSON Schema has no keyword "$id" that is understood here`,
			`input_schema."$schema": only draft 2020-12 is understood: https://json-schema.org/draft/2020-12/schema`,
			"input_schema.items: want a schema: a mapping, true or false, got a list"}},
		{"values", `{properties: {a: {pattern: "(?=x)"}}}`, []string{
			"input_schema: bad schema: REGEXP"}},
		{"types", `{type: string}`, []string{"input_schema.type: an input is an object, which this schema never takes"}},
		{"references", `{properties: {a: {$ref: "https://example.test/x"}, b: {$ref: "#/$defs/no"}, c: {$ref: 5}, d: {$ref: "file:///etc/passwd"}, e: {$ref: "#/properties"}}}`, []string{
			`input_schema.properties.a."$ref": a reference leads to a place in this schema, as "#/$defs/name" does, not to "https://example.test/x"`,
			`input_schema.properties.b."$ref": there is no schema at "#/$defs/no"`,
			`input_schema.properties.c."$ref": want a reference such as "#/$defs/name" as a text, got the number 5; quote it`,
			`input_schema.properties.d."$ref": a reference leads to a place in this schema, as "#/$defs/name" does, not to "file:///etc/passwd"`,
			`input_schema.properties.e."$ref": there is no schema at "#/properties"`}},
		{"a reference to itself", `{$ref: "#"}`, []string{"input_schema: this schema refers to itself for the same value, which never ends"}},
		{"a circle of references", `{properties: {a: {$ref: "#/$defs/x"}}, $defs: {x: {allOf: [{not: {$ref: "#/$defs/y"}}]}, y: {if: {$ref: "#/$defs/x"}}}}`, []string{
			`input_schema."$defs".x: this schema refers to itself for the same value, which never ends`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := problems(t, map[string]string{"a.yaml": "workflows: {w: {run: x, input_schema: " + tt.schema + "}}\n"})
			for i, line := range got {
				_, line, _ = strings.Cut(line, "workflows.w.")
				if at := strings.Index(line, "error parsing regexp"); at >= 0 {
					line = "input_schema: bad schema: REGEXP"
				}
				got[i] = line
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestInputsThatNeverPass: what a launch will get is known when the file is read, and so is that it would be refused.
func TestInputsThatNeverPass(t *testing.T) {
	got := problems(t, map[string]string{"a.yaml": `workflows:
  strict:
    run: x
    input: {kind: dayly, more: 1, count: 5}
    input_schema: {required: [kind, to], properties: {kind: {enum: [daily]}, to: {type: string}, count: {type: integer}}, additionalProperties: false}
  fine:
    run: x
    input: {kind: daily}
    input_schema: {required: [kind, to], properties: {kind: {enum: [daily]}, to: {type: string}}}
  caller: {steps: [{name: a, start: fine}, {name: b, start: {workflow: fine, input: {to: x}}}, {name: c, start: {workflow: fine, input: .x}}]}
schedules:
  - {run: fine, every: 1h}
  - {run: fine, every: 1h, input: {to: 5}}
  - {run: fine, every: 1h, input: {to: x}}
monitors:
  - {watch: a, start: fine, input: {to: []}}
  - {watch: b, start: fine, input: "{to: .x}"}
  - {watch: c, start: fine}
`})
	const no = `the input that workflow "fine" would get is not what its input_schema allows: `
	want := []string{
		"a.yaml:4:19: workflows.strict.input.kind: default is not what input_schema allows: kind: enum: dayly does not equal any of: [daily]",
		`a.yaml:4:32: workflows.strict.input.more: default is not what input_schema allows: unexpected additional properties ["more"]`,
		"a.yaml:10:37: workflows.caller.steps[0].start: " + no + `required: missing properties: ["to"]`,
		"a.yaml:12:11: schedules[0]: " + no + `required: missing properties: ["to"]`,
		"a.yaml:13:35: schedules[1]: " + no + `to: type: 5 has type "integer", want "string"`,
		"a.yaml:16:36: monitors[0]: " + no + `to: type: [] has type "array", want "string"`,
		"a.yaml:18:23: monitors[2]: " + no + `required: missing properties: ["to"]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDeepSchemas: what is nested too deep is refused soon, and an input may be nested as deep as it likes.
func TestDeepSchemas(t *testing.T) {
	nested := func(n int) string {
		return "workflows: {w: {run: x, input_schema: " + strings.Repeat("{properties: {a: ", n) + "{type: string}" + strings.Repeat("}}", n) + "}}\n"
	}
	soon(t, func() {
		got := problems(t, map[string]string{"a.yaml": nested(1000)})
		if len(got) != 1 || !strings.HasSuffix(got[0], ": schemas are nested more than 100 deep") {
			t.Errorf("got %.300q", got)
		}
		c := load(t, map[string]string{"a.yaml": "workflows: {w: {run: x, input_schema: {properties: {a: {$ref: \"#\"}}, additionalProperties: false}}}\n"})
		const deep = 1000
		for leaf, good := range map[string]bool{"{}": true, `{"b":1}`: false} {
			input := strings.Repeat(`{"a":`, deep) + leaf + strings.Repeat("}", deep)
			if err := c.Workflow("w").Schema.Validate(jsontext.Value(input)); (err == nil) != good {
				t.Errorf("%s: got %.300v", leaf, err)
			}
		}
	})
}
