package catalog

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"marbles/cmd/internal/strict"
)

// The keywords of a schema, by what they hold: a schema, a list of them, a mapping of them by name, or something else.
var (
	schemaWords = []string{"additionalProperties", "items", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
		"not", "if", "then", "else"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMaps  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	plainWords  = []string{"$schema", "$ref", "$comment", "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
		"exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
		"maxProperties", "minProperties", "required", "dependentRequired", "title", "description", "default", "deprecated", "readOnly",
		"writeOnly", "examples", "format"}
	// inPlace are those whose schemas are about the same value as their own schema.
	inPlace = []string{"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas"}
)

// maxSchemaDepth bounds how deep schemas stand in one another: the library's time grows with its square.
const maxSchemaDepth = 100

// draft is the one version of JSON Schema that is understood.
const draft = "https://json-schema.org/draft/2020-12/schema"

// schemaChecker checks of a schema what its library does not: keywords that it would pass over, references that lead out
// of it, and those that never come to an end.
type schemaChecker struct {
	*decoder
	at    map[string]*strict.Node // schemas by JSON pointer
	refs  []schemaRef
	edges map[string][]string // schemas about the same value
	order []string
}

type schemaRef struct {
	from, to string
	node     *strict.Node
}

// check walks a schema that stands so deep in others.
func (c *schemaChecker) check(pointer string, n *strict.Node, depth int) {
	if depth > maxSchemaDepth {
		c.Errorf(n, "schemas are nested more than %d deep", maxSchemaDepth)
		return
	}
	c.at[pointer] = n
	c.order = append(c.order, pointer)
	switch strict.KindOf(n) {
	case strict.Map:
	case strict.Bool, strict.Bad:
		return
	default:
		c.Want(n, "a schema: a mapping, true or false")
		return
	}
	for k, v := range c.Pairs(n) {
		word := k.Value
		inner := pointer + "/" + escapePointer(word)
		switch {
		case slices.Contains(schemaWords, word):
			c.inner(pointer, word, inner, v, depth)
		case slices.Contains(schemaLists, word):
			if c.List(v, "a list of schemas") {
				for i, item := range c.Items(v) {
					c.inner(pointer, word, inner+"/"+strconv.Itoa(i), item, depth)
				}
			}
		case slices.Contains(schemaMaps, word):
			if c.Map(v, "a mapping of schemas by name") {
				for name, item := range c.Pairs(v) {
					c.inner(pointer, word, inner+"/"+escapePointer(name.Value), item, depth)
				}
			}
		case word == "$ref":
			if text, ok := c.String(v, "a reference such as \"#/$defs/name\" as a text"); ok {
				c.refs = append(c.refs, schemaRef{pointer, text, v})
			}
		case word == "$schema":
			if v.Value != draft {
				c.Errorf(v, "only draft 2020-12 is understood: %s", draft)
			}
		case slices.Contains(plainWords, word) || strings.HasPrefix(word, "x-"):
		default:
			c.Near(k, word, slices.Concat(schemaWords, schemaLists, schemaMaps, plainWords), "JSON Schema has no keyword %q that is understood here", word)
		}
	}
}

func (c *schemaChecker) inner(outer, word, pointer string, n *strict.Node, depth int) {
	if slices.Contains(inPlace, word) {
		c.edges[outer] = append(c.edges[outer], pointer)
	}
	c.check(pointer, n, depth+1)
}

// references checks that every one leads to a schema of the same file, and that none comes back to the value it began
// with.
func (c *schemaChecker) references() {
	for _, r := range c.refs {
		to, err := url.PathUnescape(r.to)
		if err != nil || !strings.HasPrefix(to, "#") {
			c.Errorf(r.node, "a reference leads to a place in this schema, as \"#/$defs/name\" does, not to %q", r.to)
			continue
		}
		to = "#" + strings.TrimSuffix(to[1:], "/")
		if c.at[to] == nil {
			c.Errorf(r.node, "there is no schema at %q", r.to)
			continue
		}
		c.edges[r.from] = append(c.edges[r.from], to)
	}
	done := make(map[string]bool)
	for _, pointer := range c.order {
		if loop := c.loop(pointer, map[string]bool{}, done); loop != "" {
			c.Errorf(c.at[loop], "this schema refers to itself for the same value, which never ends")
			return
		}
	}
}

// loop finds a schema that is reached from itself.
func (c *schemaChecker) loop(pointer string, open, done map[string]bool) string {
	switch {
	case open[pointer]:
		return pointer
	case done[pointer]:
		return ""
	}
	open[pointer] = true
	for _, to := range c.edges[pointer] {
		if loop := c.loop(to, open, done); loop != "" {
			return loop
		}
	}
	delete(open, pointer)
	done[pointer] = true
	return ""
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
