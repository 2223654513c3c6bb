package main

import (
	"fmt"
	"go/ast"
	"reflect"
	"strings"
	"sync"

	"github.com/golangci/misspell"
	"github.com/golangci/unconvert"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/imports"
	"honnef.co/go/tools/unused"
)

// goimports also sees what gofmt does. Which imports are missing, the compiler says.
func goimports(pass *analysis.Pass, f *ast.File) {
	file := pass.Fset.File(f.FileStart)
	s := sourceOf(pass, file.Name())
	want, err := imports.Process(s.name, []byte(s.text), &imports.Options{
		FormatOnly: true, Comments: true, TabIndent: true, TabWidth: 8,
	})
	if err != nil || string(want) == s.text {
		return // what does not parse, the compiler reports
	}
	for i, l := range strings.Split(string(want), "\n") {
		if i >= len(s.lines) || s.lines[i] != l {
			pass.Reportf(file.LineStart(min(i+1, file.LineCount())), "not as goimports writes it")
			return
		}
	}
}

var words = sync.OnceValue(func() *misspell.Replacer { return misspell.New() })

func misspelt(pass *analysis.Pass, f *ast.File) {
	file := pass.Fset.File(f.FileStart)
	_, wrong := words().Replace(sourceOf(pass, file.Name()).text)
	for _, w := range wrong {
		pass.Reportf(file.LineStart(w.Line), "%s: %s", w.Original, w.Corrected)
	}
}

func conversions(pass *analysis.Pass) (any, error) {
	for _, p := range unconvert.Run(pass) {
		pass.Reportf(at(pass, p), "unnecessary conversion")
	}
	return nil, nil
}

// What is in a package and its tests is seen together: go vet looks at both as one.
var dead = &analysis.Analyzer{
	Name: "unused", Doc: "code that nothing uses", Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		found, ok := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
		if !ok {
			return nil, fmt.Errorf("unused returned %v", reflect.TypeOf(pass.ResultOf[unused.Analyzer.Analyzer]))
		}
		for _, o := range found.Unused {
			if p := at(pass, o.Position); p.IsValid() {
				pass.Reportf(p, "%s %s is unused", o.Kind, o.Name)
			}
		}
		return nil, nil
	},
}
