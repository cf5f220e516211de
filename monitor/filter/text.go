package filter

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// textOf is the text below an element in one line, white space collapsed. Elements that are not within a line separate
// words. What a reader of the page never sees is left out, unless it is what was selected.
func textOf(root *html.Node) string {
	var b strings.Builder
	for n := root; n != nil; {
		switch n.Type {
		case html.TextNode:
			b.WriteString(n.Data)
		case html.ElementNode:
			if !inline(n.DataAtom) {
				b.WriteByte(' ')
			}
		}
		if n.FirstChild != nil && (n == root || !unseen(n)) {
			n = n.FirstChild
			continue
		}
		for n != root && n.NextSibling == nil {
			n = n.Parent
			if n.Type == html.ElementNode && !inline(n.DataAtom) {
				b.WriteByte(' ')
			}
		}
		if n == root {
			break
		}
		n = n.NextSibling
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func unseen(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Template, atom.Iframe, atom.Noembed, atom.Noframes:
		return true
	}
	return false
}

// inline are the elements that go on with the line they are in, by the HTML standard's "phrasing content".
func inline(a atom.Atom) bool {
	switch a {
	case atom.A, atom.Abbr, atom.Acronym, atom.B, atom.Bdi, atom.Bdo, atom.Big, atom.Cite, atom.Code, atom.Data, atom.Del,
		atom.Dfn, atom.Em, atom.Font, atom.I, atom.Ins, atom.Kbd, atom.Label, atom.Mark, atom.Nobr, atom.Q, atom.Ruby, atom.S,
		atom.Samp, atom.Small, atom.Span, atom.Strike, atom.Strong, atom.Sub, atom.Sup, atom.Time, atom.Tt, atom.U, atom.Var,
		atom.Wbr:
		return true
	}
	return false
}
