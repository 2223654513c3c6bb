// Command lint is the linters of this repository as one tool of go vet, which keeps what they find in the build cache:
// scripts/lint.sh. What they are told stands in rules.yml. A line is exempt with //nolint:LINTER // REASON.
package main

import (
	"encoding/gob"
	"encoding/json"
	"log"
	"os"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
)

func main() {
	log.SetFlags(0)
	r, err := readRules()
	if err != nil {
		log.Fatal(err)
	}
	all, err := linters(r)
	if err != nil {
		log.Fatal(err)
	}
	// A package that is only imported is looked at for what others must know of it: what does not return, what prints,
	// what is deprecated.
	if factsOnly(os.Args[len(os.Args)-1]) {
		for _, l := range all {
			register(l.Analyzer)
		}
		unitchecker.Main(ctrlflow.Analyzer, printf.Analyzer, deprecated.Analyzer)
		return
	}
	var wrapped []*analysis.Analyzer
	for _, l := range all {
		wrapped = append(wrapped, r.wrap(l))
	}
	unitchecker.Main(wrapped...)
}

func factsOnly(file string) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false // a flag
	}
	var c unitchecker.Config
	return json.Unmarshal(b, &c) == nil && c.VetxOnly
}

// register makes the facts that a run of all linters has left readable.
func register(a *analysis.Analyzer) {
	for _, f := range a.FactTypes {
		gob.Register(f)
	}
	for _, b := range a.Requires {
		register(b)
	}
}
