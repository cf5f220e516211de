package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// maxSource is the most bytes of a program, selector or expression. Compilers nest as deep as their source does.
const maxSource = 64 << 10

// CompileProgram compiles a jq program, which sees its input and nothing else: `env`, `$ENV`, `input`, `debug`, `import` and
// what else reaches outside are errors. An error in the program is a *SyntaxError.
func CompileProgram(src string) (p *Program, err error) {
	if len(src) > maxSource {
		return nil, at(src, -1, fmt.Sprintf("the jq program is longer than %d KiB", maxSource>>10), "")
	}
	if i := badUTF8(src); i >= 0 {
		return nil, at(src, i, "not UTF-8", "")
	}
	defer func() { // a compiler panics where it contradicts itself
		if r := recover(); r != nil {
			p, err = nil, at(src, -1, fmt.Sprintf("the jq program breaks its compiler: %v", r), "")
		}
	}()
	query, err := gojq.Parse(src)
	if err != nil {
		return nil, unparsed(src, err)
	}
	words := scan(src)
	environment := false
	code, err := gojq.Compile(query, gojq.WithEnvironLoader(func() []string {
		environment = true
		return nil
	}))
	switch {
	case err != nil:
		return nil, uncompiled(src, words, err)
	case environment:
		i := slices.IndexFunc(words, func(w word) bool { return w.text == "env" || w.text == "$ENV" })
		return nil, at(src, offset(words, i), "the environment is out of a program's reach", "")
	}
	for _, w := range words {
		if strings.HasPrefix(w.text, "@") && !slices.Contains(strings.Fields(formats), w.text) {
			return nil, at(src, w.at, "there is no format "+w.text, "they are "+strings.ReplaceAll(formats, " ", ", "))
		}
	}
	return &Program{code, memory}, nil
}

// formats are the interpreter's, which finds a wrong one only when it comes by.
const formats = "@text @json @html @uri @urid @csv @tsv @sh @base64 @base64d"

func unparsed(src string, err error) error {
	syntax, ok := errors.AsType[*gojq.ParseError](err)
	if !ok {
		return at(src, -1, err.Error(), "")
	}
	where := max(0, syntax.Offset-len(syntax.Token))
	hint := ""
	switch {
	case syntax.Token == "" && where >= len(src):
		return at(src, len(src), "the jq program ends too early", "")
	case syntax.Token == "'":
		hint = `texts are in double quotes: "…"`
	}
	return at(src, where, err.Error(), hint)
}

// uncompiled finds the place of an error that the compiler tells only as a text. Where the text is another than
// expected it is shown without a place.
func uncompiled(src string, words []word, err error) error {
	problem := err.Error()
	_, name, _ := strings.Cut(problem, ": ")
	switch {
	case strings.HasPrefix(name, "$"):
		i := slices.IndexFunc(words, func(w word) bool { return w.text == name })
		return at(src, offset(words, i), problem, "")
	case strings.HasPrefix(name, `"`):
		i := slices.IndexFunc(words, func(w word) bool { return w.text == "import" || w.text == "include" })
		return at(src, offset(words, i), problem, "modules are out of a program's reach")
	case strings.HasPrefix(problem, "input"):
		i := slices.IndexFunc(words, func(w word) bool { return w.text == "input" || w.text == "inputs" })
		return at(src, offset(words, i), problem, "the one value a program sees is `.`")
	}
	name, arity, ok := strings.Cut(name, "/")
	if !ok {
		return at(src, -1, problem, "")
	}
	i := slices.IndexFunc(words, func(w word) bool { return w.text == name && fmt.Sprint(w.arity) == arity })
	if i < 0 {
		return at(src, -1, problem, "")
	}
	return at(src, words[i].at, problem, undefined(words, i))
}

// undefined says what is probably meant by a function that is not defined.
func undefined(words []word, i int) string {
	const outside = "debug stderr input_filename input_line_number get_search_list"
	w := words[i]
	if slices.Contains(strings.Fields(outside), w.text) {
		return "a program sees its input and nothing else"
	}
	if i > 1 && words[i-1].text == "-" && words[i-1].at+1 == w.at && strings.HasPrefix(words[i-2].text, ".") && words[i-2].end() == words[i-1].at {
		return fmt.Sprintf("a name with - in it is quoted: .%q", words[i-2].text[1:]+"-"+w.text)
	}
	known, arities := functions(), []string(nil)
	for _, f := range known {
		if name, arity, _ := strings.Cut(f, "/"); name == w.text {
			arities = append(arities, arity)
		}
	}
	if len(arities) > 0 {
		slices.Sort(arities)
		return fmt.Sprintf("%s takes %s arguments, with ; between them", w.text, strings.Join(arities, " or "))
	}
	if near := nearest(w.text, known); near != "" {
		return fmt.Sprintf("is %s meant, or the member .%s?", near, w.text)
	}
	if w.arity == 0 {
		return "is the member ." + w.text + " meant?"
	}
	return ""
}

// functions are those of the language, as "name/arity".
func functions() []string {
	query, err := gojq.Parse("builtins[]")
	if err != nil {
		return nil
	}
	var found []string
	for run := query.Run(nil); ; {
		v, more := run.Next()
		name, ok := v.(string)
		if !more || !ok {
			return found
		}
		found = append(found, name)
	}
}

// nearest is the function that is one letter away, or "".
func nearest(name string, known []string) string {
	for _, f := range known {
		if f, _, _ = strings.Cut(f, "/"); len(name) > 2 && oneEdit(name, f) {
			return f
		}
	}
	return ""
}

// oneEdit reports whether one letter less, more, other, or swapped with the next makes a of b.
func oneEdit(a, b string) bool {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	switch {
	case len(a) == len(b)+1:
		return a[1:] == b
	case len(a)+1 == len(b):
		return a == b[1:]
	case len(a) != len(b) || a == "":
		return false
	}
	return a[1:] == b[1:] || len(a) > 1 && a[0] == b[1] && a[1] == b[0] && a[2:] == b[2:]
}
