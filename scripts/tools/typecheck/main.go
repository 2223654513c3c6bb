// Command typecheck looks whether packages compile for other systems, without compiling them: what can be wrong in code
// of ours is a name that is missing there.
//
//	typecheck PACKAGE SYSTEM/ARCHITECTURE...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/fabric-cni/fabric-cni"

func main() {
	status := 0
	for _, system := range os.Args[2:] {
		found, err := wrong(os.Args[1], system)
		if err != nil {
			found = append(found, err.Error())
		}
		for _, text := range found {
			fmt.Printf("%s: %s\n", system, text)
			status = 1
		}
	}
	os.Exit(status)
}

func wrong(pattern, system string) (found []string, err error) {
	goos, arch, _ := strings.Cut(system, "/")
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	roots, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule,
		Env:  append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if f != nil && !strings.HasPrefix(name, here+"/") {
				declarations(f)
			}
			return f, err
		},
	}, pattern)
	if err != nil {
		return nil, err
	}
	ours := 0
	packages.Visit(roots, nil, func(p *packages.Package) {
		if p.Module == nil || p.Module.Path != module {
			return
		}
		ours++
		for _, e := range p.Errors {
			found = append(found, e.Error())
		}
	})
	if ours == 0 {
		return nil, fmt.Errorf("%s: no package of this module", pattern)
	}
	return found, nil
}

// declarations leaves of other people's code what ours sees of it.
func declarations(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fn.Body = nil
		}
	}
}
