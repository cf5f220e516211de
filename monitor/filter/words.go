package filter

import "strings"

// A word is a name in a jq program with the sign before it (`.name`, `$name`, `@name`), or a single sign.
type word struct {
	text  string
	at    int // its first byte
	arity int // of a name with arguments behind it: how many
}

func (w word) end() int { return w.at + len(w.text) }

func offset(words []word, i int) int {
	if i < 0 {
		return -1
	}
	return words[i].at
}

// scan finds the words of a program that parses, outside of comments and texts. It serves to find the place of what the
// compiler names, which it does not say.
func scan(src string) []word {
	s := &scanner{src: src}
	s.code(0)
	for i := range s.words {
		s.words[i].arity = arity(s.words[i+1:])
	}
	return s.words
}

type scanner struct {
	src   string
	at    int
	words []word
}

// code reads to the end, or to the parenthesis that closes a text's `\(`.
func (s *scanner) code(depth int) {
	for open := 0; s.at < len(s.src); {
		b := s.src[s.at]
		switch {
		case b == '"':
			s.text(depth)
			continue
		case b == '#':
			if i := strings.IndexByte(s.src[s.at:], '\n'); i >= 0 {
				s.at += i
				continue
			}
			s.at = len(s.src)
			return
		case b <= ' ':
			s.at++
			continue
		case b == '(':
			open++
		case b == ')':
			if open--; open < 0 && depth > 0 {
				return
			}
		}
		s.word()
	}
}

// maxTexts is how deep texts in texts are followed.
const maxTexts = 100

func (s *scanner) text(depth int) {
	s.words = append(s.words, word{text: `"`, at: s.at})
	for s.at++; s.at < len(s.src); s.at++ {
		switch s.src[s.at] {
		case '"':
			s.at++
			return
		case '\\':
			if s.at++; s.at < len(s.src) && s.src[s.at] == '(' && depth < maxTexts {
				s.at++
				s.code(depth + 1)
			}
		}
	}
}

func (s *scanner) word() {
	from := s.at
	if strings.IndexByte(".$@", s.src[s.at]) >= 0 {
		s.at++
	}
	name := s.at
	for s.at < len(s.src) && letter(s.src[s.at], s.at > name) {
		s.at++
	}
	if s.at == from {
		s.at++
	}
	s.words = append(s.words, word{text: s.src[from:s.at], at: from})
}

func letter(b byte, digits bool) bool {
	return b == '_' || b|0x20 >= 'a' && b|0x20 <= 'z' || digits && b >= '0' && b <= '9'
}

// arity counts the arguments at the beginning of words: `(a; b)` are two.
func arity(words []word) int {
	if len(words) == 0 || words[0].text != "(" {
		return 0
	}
	depth, n := 0, 1
	for _, w := range words {
		switch w.text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			if depth--; depth == 0 {
				return n
			}
		case ";":
			if depth == 1 {
				n++
			}
		}
	}
	return n
}
