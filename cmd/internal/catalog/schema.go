package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"marbles/cmd/internal/strict"
	"marbles/runner"
)

// schema is a workflow's input_schema. Everything it refers to stands in it.
type schema struct {
	whole *jsonschema.Resolved
	// loose is what holds for each member by itself, whatever the others are: what an input's defaults are held to.
	loose *jsonschema.Resolved
}

// Validate reports whether an object is a valid input; nil is the empty one.
func (s *schema) Validate(input jsontext.Value) error { return validate(s.whole, input) }

// validate turns a panic of the library into an error: an input must never end the service.
func validate(s *jsonschema.Resolved, input jsontext.Value) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("cannot be checked: %v", v)
		}
	}()
	object, err := decodeObject(input)
	if err != nil {
		return err
	}
	if err := s.Validate(object); err != nil {
		return errors.New(plainSchemaError(err.Error()))
	}
	return nil
}

// decodeObject reads an object as the library takes one. Whole numbers are exact as far as 64 bits reach.
func decodeObject(input jsontext.Value) (map[string]any, error) {
	object := map[string]any{}
	if input == nil {
		return object, nil
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
	}
	for name, value := range object {
		object[name] = numbers(value)
	}
	return object, nil
}

// numbers makes numbers of their texts, which the library would take for strings.
func numbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n
		}
		f, _ := value.Float64()
		return f
	case []any:
		for i, item := range value {
			value[i] = numbers(item)
		}
	case map[string]any:
		for name, item := range value {
			value[name] = numbers(item)
		}
	}
	return value
}

// overlay lays an input over a workflow's defaults, by member.
func overlay(defaults, input jsontext.Value) (jsontext.Value, error) {
	if defaults == nil || input == nil {
		if input == nil {
			return defaults, nil
		}
		return input, nil
	}
	whole := make(map[string]json.RawMessage)
	for _, text := range []jsontext.Value{defaults, input} {
		if err := json.Unmarshal(text, &whole); err != nil {
			return nil, err
		}
	}
	return json.Marshal(whole)
}

// plainSchemaError is the library's error without the way to the place: where in the schema, and what is wrong.
func plainSchemaError(text string) string {
	at := ""
	for {
		rest, ok := strings.CutPrefix(text, "validating ")
		if !ok {
			break
		}
		where, rest, ok := strings.Cut(rest, ": ")
		if !ok {
			break
		}
		at, text = where, rest
	}
	text = strings.Join(strings.Fields(text), " ")
	text = strings.TrimSuffix(strings.Replace(text, "/1 is ", " is ", 1), ".000000") // whole numbers as they are written
	if at = strings.TrimPrefix(at, "/"); at == "" || at == "root" {
		return text
	}
	return strings.TrimPrefix(at, "properties/") + ": " + text
}

// schema reads an input_schema (JSON Schema, draft 2020-12).
func (d *decoder) schema(n *strict.Node) runner.Schema {
	if !d.Map(n, "a JSON Schema: a mapping such as {required: [kind], properties: {kind: {enum: [daily, monthly]}}}") {
		return nil
	}
	before := len(d.Errors)
	c := schemaChecker{decoder: d, at: make(map[string]*strict.Node), edges: make(map[string][]string)}
	c.check("#", n, 0)
	c.references()
	text, ok := d.JSON(n)
	if !ok || len(d.Errors) > before {
		return nil
	}
	s := new(schema)
	var err error
	if s.whole, err = resolve(text); err == nil {
		s.loose, err = resolve(loosened(text))
	}
	if err != nil {
		d.Errorf(n, "bad schema: %v", err)
		return nil
	}
	if types := valueOf(n, "type"); types != nil && !allowsObject(types) {
		d.Errorf(types, "an input is an object, which this schema never takes")
		return nil
	}
	return s
}

// resolve makes a schema of its text.
func resolve(text jsontext.Value) (r *jsonschema.Resolved, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it cannot be understood: %v", v)
		}
	}()
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// loosened is a schema without what needs several members, or all of them, to be told.
func loosened(text jsontext.Value) jsontext.Value {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return text
	}
	for name := range members {
		switch name {
		case "$schema", "$defs", "definitions", "properties", "patternProperties", "additionalProperties", "propertyNames":
		default:
			delete(members, name)
		}
	}
	loose, err := json.Marshal(members)
	if err != nil {
		return text
	}
	return loose
}

func allowsObject(types *strict.Node) bool {
	if strict.KindOf(types) != strict.List {
		return types.Value == "object"
	}
	for _, item := range types.Content {
		if item.Value == "object" {
			return true
		}
	}
	return false
}

// checkDefaults reports defaults that no input could leave as they are.
func (d *decoder) checkDefaults(w *Workflow, input *strict.Node) {
	s, ok := w.Schema.(*schema)
	if !ok || s == nil || input == nil || strict.KindOf(input) != strict.Map {
		return
	}
	for k, v := range d.Pairs(input) {
		value, ok := d.JSON(v)
		if !ok {
			return // reported, twice; see input
		}
		name, _ := jsontext.AppendQuote(nil, k.Value)
		if err := validate(s.loose, fmt.Appendf(nil, "{%s:%s}", name, value)); err != nil {
			d.Errorf(v, "default is not what input_schema allows: %v", err)
		}
	}
}
