package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// stdlib is the module that the database of Go has the standard library's advisories under.
const stdlib = "stdlib"

// advisory is a line of the list: ID MODULE VERSIONS SOURCE.
type advisory struct {
	ID     string // GO-..., CVE-... or GHSA-...
	Module string
	Ranges []versions // that are affected
	Source string     // where this is known from
}

// versions are those from From, which may be 0, up to but without Fixed. Without Fixed no release mends it.
type versions struct{ From, Fixed string }

// exception is a line of the list of those that don't reach our code: ID MODULE REASON.
type exception struct{ ID, Module, Reason string }

// hit is an advisory that a binary is affected by.
type hit struct {
	advisory

	Binary, Version string
}

func (v versions) String() string { return v.From + ".." + v.Fixed }

func (v versions) has(version string) bool {
	from := v.From == "0" || semver.Compare(version, "v"+v.From) >= 0 // v0.0.0-2026... is before v0
	return from && (v.Fixed == "" || semver.Compare(version, "v"+v.Fixed) < 0)
}

func (a advisory) String() string {
	var ranges []string
	for _, r := range a.Ranges {
		ranges = append(ranges, r.String())
	}
	return strings.Join([]string{a.ID, a.Module, strings.Join(ranges, ","), a.Source}, " ")
}

// fixed names the releases that mend it.
func (a advisory) fixed() string {
	var out []string
	for _, r := range a.Ranges {
		if r.Fixed != "" {
			out = append(out, r.Fixed)
		}
	}
	if out == nil {
		return "no release has a fix"
	}
	return "fixed in " + strings.Join(out, " and ")
}

// lines are the lines of a file without comments, each with its fields. The last field has the rest of the line.
func lines(file string, fields int) ([][]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", fields)
		if len(f) != fields || slices.Contains(f, "") {
			return nil, fmt.Errorf("%s:%d: want %d fields with one space between them: %q", file, i+1, fields, line)
		}
		out = append(out, f)
	}
	return out, nil
}

func readAdvisories(file string) (out []advisory, err error) {
	all, err := lines(file, 4)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		a := advisory{ID: f[0], Module: f[1], Source: f[3]}
		for r := range strings.SplitSeq(f[2], ",") {
			from, fixed, ok := strings.Cut(r, "..")
			if !ok || !semver.IsValid("v"+from) || fixed != "" && !semver.IsValid("v"+fixed) {
				return nil, fmt.Errorf("%s: %s: versions %q: want FROM..FIXED, as in 0..1.2.3", file, a.ID, r)
			}
			a.Ranges = append(a.Ranges, versions{from, fixed})
		}
		out = append(out, a)
	}
	return out, nil
}

func readExceptions(file string) (out []exception, err error) {
	all, err := lines(file, 3)
	for _, f := range all {
		out = append(out, exception{f[0], f[1], f[2]})
	}
	return out, err
}

// modules are those in a binary, by its build information: the module that was compiled where another replaces it.
func modules(binary string) (map[string]string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the build information of %s: %w", binary, err)
	}
	out := map[string]string{}
	if v, ok := strings.CutPrefix(info.GoVersion, "go"); ok {
		v, _, _ = strings.Cut(v, " ") // experiments follow
		out[stdlib] = "v" + v
	}
	for _, d := range info.Deps {
		if d.Replace != nil && d.Replace.Version != "" {
			d = d.Replace
		}
		out[d.Path] = d.Version
	}
	for path, v := range out {
		if !semver.IsValid(v) {
			return nil, fmt.Errorf("%s: %s has version %q, which can't be compared", binary, path, v)
		}
	}
	return out, nil
}

// check returns what each binary is affected by, and the exceptions that are of no use: nothing is affected by them.
func check(list []advisory, exceptions []exception, binaries []string) (hits []hit, unused []exception, err error) {
	used := map[exception]bool{}
	for _, binary := range binaries {
		deps, err := modules(binary)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range list {
			v, ok := deps[a.Module]
			if !ok || !slices.ContainsFunc(a.Ranges, func(r versions) bool { return r.has(v) }) {
				continue
			}
			i := slices.IndexFunc(exceptions, func(e exception) bool { return e.ID == a.ID && e.Module == a.Module })
			if i >= 0 {
				used[exceptions[i]] = true
				continue
			}
			hits = append(hits, hit{a, filepath.Base(binary), v})
		}
	}
	return hits, slices.DeleteFunc(slices.Clone(exceptions), func(e exception) bool { return used[e] }), nil
}
