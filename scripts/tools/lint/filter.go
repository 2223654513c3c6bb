package main

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
)

const module = "github.com/fabric-cni/fabric-cni/"

// wrap returns the analyzer without what //nolint or an exclusion of rules.yml exempts.
func (r *rules) wrap(l linter) *analysis.Analyzer {
	a := *l.Analyzer
	a.Run = func(pass *analysis.Pass) (any, error) {
		p := *pass
		p.Report = func(d analysis.Diagnostic) {
			at := pass.Fset.Position(d.Pos)
			s := sourceOf(pass, at.Filename)
			if s.generated || s.exempt(l.name, at.Line) ||
				r.excludes(l.name, s.path(pass), d.Message, s.line(at.Line)) {
				return
			}
			d.Message += " (" + l.name
			if a.Name != l.name {
				d.Message += " " + a.Name
			}
			d.Message += ")"
			pass.Report(d)
		}
		return l.Run(&p)
	}
	return &a
}

func (r *rules) excludes(name, path, text, source string) bool {
	return slices.ContainsFunc(r.Exclude, func(e exclusion) bool {
		return slices.Contains(e.Linters, name) && e.fits(path, text, source)
	})
}

// source is a file as the filter sees it. A process has one package.
type source struct {
	name      string
	text      string
	lines     []string
	generated bool
	nolint    []exemption
}

type exemption struct {
	pos      token.Pos
	from, to int // lines
	linters  []string
	text     string
}

var (
	sources   = map[string]*source{}
	sourcesMu sync.Mutex
)

func sourceOf(pass *analysis.Pass, name string) *source {
	sourcesMu.Lock()
	defer sourcesMu.Unlock()
	if s := sources[name]; s != nil {
		return s
	}
	s := &source{name: name}
	sources[name] = s
	b, err := os.ReadFile(name)
	if err != nil {
		return s // no file of Go: assembly, or what go test writes
	}
	s.text = string(b)
	s.lines = strings.Split(s.text, "\n")
	for _, f := range pass.Files {
		if pass.Fset.File(f.FileStart).Name() == name {
			s.generated = ast.IsGenerated(f)
			s.directives(pass.Fset, f)
		}
	}
	return s
}

func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// path is from the root of the repository.
func (s *source) path(pass *analysis.Pass) string {
	dir := strings.TrimPrefix(strings.TrimSuffix(pass.Pkg.Path(), "_test"), module)
	return path.Join(dir, filepath.Base(s.name))
}

var nolint = regexp.MustCompile(`^//nolint:([\w,]+) // \S`)

// directives finds each //nolint. It holds for its line, or the next one if it has a line of its own, and for all of a
// node that begins there.
func (s *source) directives(fset *token.FileSet, f *ast.File) {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if !strings.HasPrefix(c.Text, "//nolint") && !strings.HasPrefix(c.Text, "// nolint") {
				continue
			}
			d := exemption{pos: c.Pos(), from: fset.Position(c.Pos()).Line, text: c.Text}
			if m := nolint.FindStringSubmatch(c.Text); m != nil {
				d.linters = strings.Split(m[1], ",")
			}
			if strings.TrimSpace(s.line(d.from)) == c.Text {
				d.from++
			}
			d.to = d.from
			s.nolint = append(s.nolint, d)
		}
	}
	if len(s.nolint) == 0 {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		line := fset.Position(n.Pos()).Line
		for i := range s.nolint {
			if d := &s.nolint[i]; d.from == line {
				d.to = max(d.to, fset.Position(n.End()).Line)
			}
		}
		return true
	})
}

func (s *source) exempt(name string, line int) bool {
	return slices.ContainsFunc(s.nolint, func(d exemption) bool {
		return d.from <= line && line <= d.to && slices.Contains(d.linters, name)
	})
}
