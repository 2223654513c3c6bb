package main

import (
	"errors"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	errname "github.com/Antonboom/errname/pkg/analyzer"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/gostaticanalysis/nilerr"
	"github.com/kisielk/errcheck/errcheck"
	usestdlibvars "github.com/sashamelentyev/usestdlibvars/pkg/analyzer"
	"github.com/ultraware/funlen"
	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
)

// linter is an analyzer and the name by which //nolint and rules.yml know it.
type linter struct {
	name string
	*analysis.Analyzer
}

const maxFunction, maxLine, maxMethods = 80, 120, 30

// Names with underscores and in capitals (ST1003) are how the kernel and the RDMA libraries write them.
var off = map[string]bool{"ST1003": true}

// names are those that //nolint may name.
var names = map[string]bool{}

func linters(r *rules) ([]linter, error) {
	errs := errorlint.NewAnalyzer()
	imports, err1 := depguardOf(r)
	uses, err2 := forbidigoOf(r)
	err := errors.Join(err1, err2, errs.Flags.Set("errorf", "true"), errcheck.Analyzer.Flags.Set("assert", "true"))
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, r.Errcheck...)
	all := []linter{
		{"depguard", imports},
		{"errcheck", errcheck.Analyzer},
		{"errname", errname.New()},
		{"errorlint", errs},
		{"forbidigo", uses},
		{"funlen", funlen.NewAnalyzer(maxFunction, -1, true)},
		{"ineffassign", ineffassign.Analyzer},
		{"nilerr", nilerr.Analyzer},
		{"usestdlibvars", usestdlibvars.New()},
	}
	for _, a := range own {
		all = append(all, linter{a.Name, a})
	}
	for _, a := range govet {
		all = append(all, linter{"govet", a})
	}
	for _, list := range [][]*lint.Analyzer{
		staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers, quickfix.Analyzers,
	} {
		for _, a := range list {
			if !off[a.Analyzer.Name] {
				all = append(all, linter{"staticcheck", a.Analyzer})
			}
		}
	}
	for _, l := range all {
		names[l.name] = true
	}
	return all, err
}
