package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// declared is a constant or variable of a Go file, with what its comment says.
type declared struct {
	name    string
	value   string // of a constant
	meaning string // the first paragraph, without "NAME says that"
	cure    string // the other ones
}

// group is one declaration of constants or variables.
type group struct {
	text string // its comment
	list []declared
}

// groupsOf are the declarations of a file, in its order.
func groupsOf(file string) (out []group, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST && gen.Tok != token.VAR {
			continue
		}
		g := group{text: strings.TrimSpace(gen.Doc.Text())}
		for _, s := range gen.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				g.list = append(g.list, declaredBy(v))
			}
		}
		out = append(out, g)
	}
	return out, nil
}

func declaredBy(v *ast.ValueSpec) declared {
	d := declared{name: v.Names[0].Name}
	if len(v.Values) > 0 {
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			d.value = lit.Value
			if text, err := strconv.Unquote(lit.Value); err == nil {
				d.value = text
			}
		}
	}
	doc := v.Doc
	if doc == nil {
		doc = v.Comment
	}
	first, rest, _ := strings.Cut(doc.Text(), "\n\n")
	d.meaning, d.cure = line(first), line(rest)
	if _, says, ok := strings.Cut(d.meaning, " says that "); ok && strings.HasPrefix(d.meaning, d.name+" ") {
		d.meaning = strings.TrimSuffix(says, ".")
	}
	d.cure = strings.TrimSuffix(d.cure, ".")
	return d
}

func line(text string) string { return strings.Join(strings.Fields(text), " ") }

// groupNamed is the declaration of a file whose comment begins so. Each of what it declares has to have a comment.
func groupNamed(root, file, begins string) ([]declared, error) {
	all, err := groupsOf(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if !strings.HasPrefix(g.text, begins) {
			continue
		}
		for _, d := range g.list {
			if d.meaning == "" {
				return nil, fmt.Errorf("%s: %s must have a comment", file, d.name)
			}
		}
		return g.list, nil
	}
	return nil, fmt.Errorf("%s has no declaration %q", file, begins)
}

var ourPage = regexp.MustCompile(`docs/([a-z-]+\.md)(#[a-z0-9-]+)?`)

// cell is text fit for a cell of a table in docs/reference, with links to the pages that it names.
func cell(text string) string {
	text = strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
	return ourPage.ReplaceAllString(text, "[$1](../$1$2)")
}
