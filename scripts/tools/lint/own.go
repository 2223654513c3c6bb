package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// What no analyzer at hand does, or only one that brings a whole framework of its own with it.
var own = []*analysis.Analyzer{
	perFile("exported", "exported names have comments", exported),
	perFile("filemode", "files and directories are not for everybody", filemode),
	perFile("goimports", "as goimports writes it", goimports),
	perFile("lll", "lines of at most 120 columns", lll),
	perFile("misspell", "misspelt words", misspelt),
	perFile("nolintlint", "//nolint names linter and reason", nolintlint),
	perFile("params", "parameters that are not used, a context that is not the first", params),
	{Name: "predeclared", Doc: "names of Go itself are not given to something else", Run: predeclared},
	{Name: "methods", Doc: "types of at most 30 methods", Run: methods},
	{Name: "unconvert", Doc: "conversions that change nothing", Run: conversions},
	dead,
}

func perFile(name, doc string, run func(*analysis.Pass, *ast.File)) *analysis.Analyzer {
	return &analysis.Analyzer{Name: name, Doc: doc, Run: func(pass *analysis.Pass) (any, error) {
		for _, f := range pass.Files {
			run(pass, f)
		}
		return nil, nil
	}}
}

// Methods whose name says it all.
var known = map[string]bool{
	"Error": true, "Read": true, "ServeHTTP": true, "String": true, "Write": true, "Unwrap": true,
	"Len": true, "Less": true, "Swap": true,
}

// exported reports what has no comment; how a comment begins is ST1020 to ST1022 of staticcheck.
func exported(pass *analysis.Pass, f *ast.File) {
	report := func(kind string, id *ast.Ident) {
		if id.IsExported() {
			pass.Reportf(id.Pos(), "exported %s %s has no comment", kind, id.Name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Recv == nil {
				report("function", d.Name)
			} else if d.Doc == nil && !known[d.Name.Name] {
				report("method", d.Name)
			}
		case *ast.GenDecl:
			if d.Doc != nil {
				continue
			}
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Doc == nil {
						report("type", s.Name)
					}
				case *ast.ValueSpec:
					if s.Doc == nil && s.Comment == nil {
						report(d.Tok.String(), s.Names[0])
					}
				}
			}
		}
	}
}

// Where the mode is in the arguments, and what it may be at most.
var modes = map[string]struct {
	arg  int
	most int64
}{
	"os.Mkdir": {1, 0o750}, "os.MkdirAll": {1, 0o750},
	"os.WriteFile": {2, 0o600}, "os.OpenFile": {2, 0o600}, "os.Chmod": {1, 0o600},
}

func filemode(pass *analysis.Pass, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn := called(pass, call)
		if fn == nil {
			return true
		}
		m, ok := modes[fn.FullName()]
		if !ok || len(call.Args) <= m.arg {
			return true
		}
		if v := pass.TypesInfo.Types[call.Args[m.arg]].Value; v != nil {
			if mode, _ := constant.Int64Val(v); mode&^m.most != 0 {
				pass.Reportf(call.Args[m.arg].Pos(), "%s: mode %#o, %#o at most", fn.FullName(), mode, m.most)
			}
		}
		return true
	})
}

func called(pass *analysis.Pass, call *ast.CallExpr) *types.Func {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		fn, _ := pass.TypesInfo.Uses[s.Sel].(*types.Func)
		return fn
	}
	return nil
}

func params(pass *analysis.Pass, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function(pass, n.Type, n.Body)
		case *ast.FuncLit:
			function(pass, n.Type, n.Body)
		}
		return true
	})
}

func function(pass *analysis.Pass, t *ast.FuncType, body *ast.BlockStmt) {
	if body == nil {
		return
	}
	used := map[types.Object]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			used[pass.TypesInfo.Uses[id]] = true
		}
		return true
	})
	for i, field := range t.Params.List {
		for _, id := range field.Names {
			if o := pass.TypesInfo.Defs[id]; id.Name != "_" && !used[o] {
				pass.Reportf(id.Pos(), "unused parameter %s: name it _", id.Name)
			}
		}
		if i > 0 && types.TypeString(pass.TypesInfo.TypeOf(field.Type), nil) == "context.Context" {
			pass.Reportf(field.Pos(), "a context is the first parameter")
		}
	}
}

func predeclared(pass *analysis.Pass) (any, error) {
	for id, o := range pass.TypesInfo.Defs {
		if o == nil || types.Universe.Lookup(id.Name) == nil {
			continue
		}
		if v, ok := o.(*types.Var); ok && v.IsField() {
			continue
		}
		if fn, ok := o.(*types.Func); ok && fn.Signature().Recv() != nil {
			continue
		}
		pass.Reportf(id.Pos(), "%s is a name of Go itself", id.Name)
	}
	return nil, nil
}

// methods counts those that a type declares, without tests. An embedded type's count there.
func methods(pass *analysis.Pass) (any, error) {
	count := map[types.Object]int{}
	for id, o := range pass.TypesInfo.Defs {
		fn, ok := o.(*types.Func)
		if !ok || fn.Signature().Recv() == nil || strings.HasSuffix(pass.Fset.File(id.Pos()).Name(), "_test.go") {
			continue
		}
		t := fn.Signature().Recv().Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if n, ok := t.(*types.Named); ok && !types.IsInterface(n) {
			count[n.Obj()]++
		}
	}
	for o, n := range count {
		if n > maxMethods {
			pass.Reportf(o.Pos(), "%s has %d methods, %d at most: cut it by what needs which fields", o.Name(), n, maxMethods)
		}
	}
	return nil, nil
}

func lll(pass *analysis.Pass, f *ast.File) {
	file := pass.Fset.File(f.FileStart)
	for i, l := range sourceOf(pass, file.Name()).lines {
		columns := len([]rune(l)) + 3*strings.Count(l, "\t")
		if columns > maxLine && !strings.HasPrefix(l, "//go:generate ") && i < file.LineCount() {
			pass.Reportf(file.LineStart(i+1), "%d columns, %d at most", columns, maxLine)
		}
	}
}

func nolintlint(pass *analysis.Pass, f *ast.File) {
	for _, d := range sourceOf(pass, pass.Fset.File(f.FileStart).Name()).nolint {
		if d.linters == nil {
			pass.Reportf(d.pos, "%s: write //nolint:LINTER // REASON", d.text)
		}
		for _, name := range d.linters {
			if !names[name] {
				pass.Reportf(d.pos, "%s: there is no linter %s", d.text, name)
			}
		}
	}
}

func at(pass *analysis.Pass, p token.Position) token.Pos {
	for _, f := range pass.Files {
		if t := pass.Fset.File(f.FileStart); t.Name() == p.Filename {
			return t.LineStart(p.Line) + token.Pos(max(p.Column-1, 0))
		}
	}
	return token.NoPos
}
