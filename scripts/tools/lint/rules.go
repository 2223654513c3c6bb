package main

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/OpenPeeDeeP/depguard/v2"
	"github.com/ashanbrown/forbidigo/v2/forbidigo"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/go/analysis"

	_ "embed"
)

//go:embed rules.yml
var rulesFile []byte

type rules struct {
	Depguard map[string]struct {
		Files, Allow []string
		Deny         []struct{ Pkg, Desc string }
	}
	Forbidigo []map[string]string
	Errcheck  []string
	Exclude   []exclusion
}

type exclusion struct {
	Linters                    []string
	Path, Unless, Text, Source pattern
}

// pattern is a regular expression. One that is not given matches everything.
type pattern struct{ *regexp.Regexp }

func (p *pattern) UnmarshalYAML(n *yaml.Node) (err error) {
	p.Regexp, err = regexp.Compile(n.Value)
	return err
}

func (p pattern) fits(s string) bool { return p.Regexp == nil || p.MatchString(s) }

func (e exclusion) fits(path, text, source string) bool {
	if e.Unless.Regexp != nil && e.Unless.MatchString(path) {
		return false
	}
	return e.Path.fits(path) && e.Text.fits(text) && e.Source.fits(source)
}

func readRules() (*rules, error) {
	var r rules
	if err := yaml.Unmarshal(rulesFile, &r); err != nil {
		return nil, fmt.Errorf("rules.yml: %w", err)
	}
	return &r, nil
}

func depguardOf(r *rules) (*analysis.Analyzer, error) {
	settings := depguard.LinterSettings{}
	for name, l := range r.Depguard {
		deny := map[string]string{}
		for _, d := range l.Deny {
			deny[d.Pkg] = d.Desc
		}
		settings[name] = &depguard.List{ListMode: "lax", Files: l.Files, Allow: l.Allow, Deny: deny}
	}
	return depguard.NewAnalyzer(&settings)
}

func forbidigoOf(r *rules) (*analysis.Analyzer, error) {
	var patterns []string
	for _, p := range r.Forbidigo {
		b, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, string(b))
	}
	l, err := forbidigo.NewLinter(patterns,
		forbidigo.OptionAnalyzeTypes(true), forbidigo.OptionIgnorePermitDirectives(true))
	if err != nil {
		return nil, err
	}
	run := func(pass *analysis.Pass) (any, error) {
		for _, f := range pass.Files {
			found, err := l.RunWithConfig(forbidigo.RunConfig{Fset: pass.Fset, TypesInfo: pass.TypesInfo}, f)
			if err != nil {
				return nil, err
			}
			for _, i := range found {
				pass.Reportf(i.Pos(), "%s", i.Details())
			}
		}
		return nil, nil
	}
	return &analysis.Analyzer{Name: "forbidigo", Doc: "what may be used where: rules.yml", Run: run}, nil
}
