package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// binaries is a directory with what was built for the guests: test binaries, and a directory of programs for each set
// of tools that a suite has.
type binaries struct{ dir string }

func testBinary(pkg string) string {
	return strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-") + ".test"
}

// packages returns the packages of the suites' tests.
func packages(suites []Suite) (list []string) {
	for _, s := range suites {
		if !slices.Contains(list, s.pkg()) {
			list = append(list, s.pkg())
		}
	}
	return list
}

// make builds everything.
func (b binaries) make(ctx context.Context, suites []Suite) error {
	var tests []Build
	for _, pkg := range packages(suites) {
		tests = append(tests, Build{Name: testBinary(pkg), Package: pkg, Tags: "labguest,failpoint", Test: true})
	}
	if err := Make(ctx, b.dir, tests); err != nil {
		return err
	}
	built := filepath.Join(b.dir, "built")
	if err := Make(ctx, built, append(slices.Clone(Binaries), tools...)); err != nil {
		return err
	}
	for _, s := range suites {
		dir := b.plugins(s)
		if _, err := os.Stat(dir); err == nil {
			continue // another suite has the same tools
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create directory for binaries: %w", err)
		}
		names := slices.Clone(s.Tools)
		for _, build := range Binaries {
			names = append(names, build.Name)
		}
		for _, name := range names {
			if err := os.Link(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("link binary: %w", err)
			}
		}
	}
	return nil
}

// test returns the path of a suite's test binary.
func (b binaries) test(s Suite) string { return filepath.Join(b.dir, testBinary(s.pkg())) }

// plugins returns the directory of the programs that a suite's tests find.
func (b binaries) plugins(s Suite) string {
	return filepath.Join(b.dir, strings.Join(append([]string{"plugins"}, s.Tools...), "-"))
}
