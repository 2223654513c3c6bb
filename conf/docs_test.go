package conf_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../"

// pages are all pages that people read, with their text, by their path from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, glob := range []string{
		"*.md", "docs/*.md", "docs/zh/*.md", "docs/reference/*.md", "integration/*/README.md",
		"deployments/*.md", "deployments/examples/*.md", "deployments/helm/*/*.md",
	} {
		files, err := filepath.Glob(root + glob)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", glob, len(files), err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimPrefix(file, root)] = string(b)
		}
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fences  = regexp.MustCompile("(?s)```.*?```")
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
)

// TestPagesLinks follows every relative link, to a heading if it has one.
func TestPagesLinks(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(root + target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
			if m[2] == "" {
				continue
			}
			if there := anchors(all[target]); !slices.Contains(there, m[2]) {
				t.Errorf("%s links to %s%s, which has the headings %q", page, target, m[2], there)
			}
		}
	}
}

// TestPagesChinese compares README.zh.md and docs/zh/ with the English pages: code blocks are the same, byte for byte,
// and there are as many of them and as many sections.
func TestPagesChinese(t *testing.T) {
	all := pages(t)
	section := regexp.MustCompile(`(?m)^## `)
	for page, text := range all {
		original := strings.Replace(strings.Replace(page, ".zh.md", ".md", 1), "docs/zh/", "docs/", 1)
		if original == page {
			continue
		}
		english := all[original]
		blocks, want := fences.FindAllString(text, -1), fences.FindAllString(english, -1)
		for _, block := range blocks {
			if !slices.Contains(want, block) {
				t.Errorf("%s: this block must be as in %s:\n%s", page, original, block)
			}
		}
		if len(blocks) != len(want) {
			t.Errorf("%s has %d code blocks, %s has %d", page, len(blocks), original, len(want))
		}
		sections := len(section.FindAllString(fences.ReplaceAllString(text, ""), -1))
		if n := len(section.FindAllString(fences.ReplaceAllString(english, ""), -1)); sections != n {
			t.Errorf("%s has %d sections, %s has %d", page, sections, original, n)
		}
	}
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(text string) []string {
	var names []string
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		names = append(names, "#"+strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

// aPath is a path into the repository as it stands in code: below one of its directories, or a file of Go.
var aPath = regexp.MustCompile(
	"(?:^|[\\s\"'`(=]|\\./)((?:cmd|conf|deployments|docs|integration|internal|pkg|plugins|scripts)/[\\w./*{},-]+)",
)

// TestPagesPaths looks up every path of the repository that a page names.
func TestPagesPaths(t *testing.T) {
	for page, text := range pages(t) {
		for _, block := range code.FindAllString(text, -1) {
			for _, m := range aPath.FindAllStringSubmatch(block, -1) {
				name := strings.TrimRight(strings.TrimSuffix(m[1], "/..."), ".,/")
				found, err := filepath.Glob(root + name)
				if err != nil {
					t.Errorf("%s: %s: %v", page, name, err)
				}
				if len(found) == 0 {
					t.Errorf("%s names %s, which does not exist", page, name)
				}
			}
		}
	}
}

// TestPagesMakeTargets looks up every `make TARGET`.
func TestPagesMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(root + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)(?:^|[` + "`" + `&;] ?)make ((?:[a-z][a-z0-9-]* ?)+)`)
	for page, text := range pages(t) {
		for _, block := range code.FindAllString(text, -1) {
			for _, m := range command.FindAllStringSubmatch(block, -1) {
				for _, target := range strings.Fields(m[1]) {
					if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
						t.Errorf("%s: make %s: the Makefile has no such target", page, target)
					}
				}
			}
		}
	}
}

// TestPagesCommands looks up the commands and flags of fabricctl in its sources.
func TestPagesCommands(t *testing.T) {
	sources := strings.Join(sourcesIn(t, "cmd/fabricctl/internal/cli"), "")
	line := regexp.MustCompile("(?:fabricctl|kubectl fabric)((?: [a-z][a-z-]*)?)([^|`\n]*)")
	flag := regexp.MustCompile(` --([a-z][a-z-]+)`)
	for page, text := range pages(t) {
		if page == "docs/reference/fabricctl.md" { // which is made from the commands
			continue
		}
		for _, block := range code.FindAllString(text, -1) {
			for _, m := range line.FindAllStringSubmatch(block, -1) {
				name := strings.TrimSpace(m[1])
				if name == "completion" || name == "help" { // cobra's
					continue
				}
				if name != "" && !regexp.MustCompile(`Use: +"`+name+`[ "]`).MatchString(sources) {
					t.Errorf("%s: fabricctl %s: no such command", page, name)
				}
				options, _, _ := strings.Cut(m[2], "#")
				for _, f := range flag.FindAllStringSubmatch(options, -1) {
					if !strings.Contains(sources, `"`+f[1]+`"`) {
						t.Errorf("%s: fabricctl %s --%s: no such flag", page, name, f[1])
					}
				}
			}
		}
	}
}

// TestPagesNames looks up the Go names in pages: tests (`TestFact...` is a prefix) and what packages declare
// (`plan.Attach`, `apply.Runner.look`).
func TestPagesNames(t *testing.T) {
	packages, tests := declared(t)
	test := regexp.MustCompile(`\b(Test[A-Z]\w*)`)
	name := regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Za-z]\\w*(?:\\.\\w+)?)`")
	for page, text := range pages(t) {
		// A changelog may name what is no more; image.tag of the chart is a value.
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "deployments/helm/") {
			continue
		}
		for _, block := range code.FindAllString(text, -1) {
			for _, m := range test.FindAllStringSubmatch(strings.ReplaceAll(block, "func Test", ""), -1) {
				if !slices.ContainsFunc(tests, func(s string) bool { return strings.HasPrefix(s, m[1]) }) {
					t.Errorf("%s names %s: no test is called so", page, m[1])
				}
			}
			for _, m := range name.FindAllStringSubmatch(block, -1) {
				if there, ours := packages[m[1]]; ours && !there[m[2]] && filepath.Ext(m[2]) != ".go" &&
					!slices.Contains([]string{"go", "md", "json", "conf", "yaml", "dev"}, m[2]) {
					t.Errorf("%s names %s.%s, which package %s does not declare", page, m[1], m[2], m[1])
				}
			}
		}
	}
}

// declared lists what each package of this repository declares, by the name of the package, and all tests.
func declared(t *testing.T) (packages map[string]map[string]bool, tests []string) {
	t.Helper()
	packages = map[string]map[string]bool{}
	walkGo(t, func(file string) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names := packages[parsed.Name.Name]
		if names == nil {
			names = map[string]bool{}
			packages[parsed.Name.Name] = names
		}
		for _, decl := range parsed.Decls {
			tests = append(tests, declare(names, decl)...)
		}
	})
	return packages, tests
}

// declare adds the names of a declaration, methods and fields as TYPE.NAME, and returns the tests among them.
func declare(names map[string]bool, decl ast.Decl) (tests []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		names[d.Name.Name] = true // methods too: `apply.moveRDMA` reads well enough
		if d.Recv == nil {
			if strings.HasPrefix(d.Name.Name, "Test") {
				tests = append(tests, d.Name.Name)
			}
			return tests
		}
		recv := d.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		if id, ok := recv.(*ast.Ident); ok {
			names[id.Name+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names[id.Name] = true
				}
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, id := range f.Names {
							names[s.Name.Name+"."+id.Name] = true
						}
					}
				}
			}
		}
	}
	return tests
}

// TestPagesFields compares the fields that the parser knows, by the rows {name, kind} of its tables, with those in
// docs/configuration.md.
func TestPagesFields(t *testing.T) {
	text := pages(t)["docs/configuration.md"]
	row := regexp.MustCompile(`(?:\{|vfOnOff\()"(\w+)", (?:(?:ours|peer|envelope)\}|device)`)
	found := 0
	for _, file := range []string{"keys.go", "vffield.go"} {
		b, err := os.ReadFile(root + "pkg/netconf/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(b), -1) {
			found++
			if !regexp.MustCompile("`" + m[1] + `\b`).MatchString(text) {
				t.Errorf("docs/configuration.md does not have the field %s", m[1])
			}
		}
	}
	if found < 45 {
		t.Errorf("%d fields in pkg/netconf: are the tables elsewhere?", found)
	}
}

// TestPagesCodes compares the error codes that the plugin declares with those in docs/errors.md.
func TestPagesCodes(t *testing.T) {
	b, err := os.ReadFile(root + "plugins/fabric/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	text := pages(t)["docs/errors.md"]
	codes := regexp.MustCompile(`code\w+ += (\d+)`).FindAllStringSubmatch(string(b), -1)
	for _, m := range codes {
		if !strings.Contains(text, "\n| "+m[1]+" |") {
			t.Errorf("docs/errors.md does not have code %s", m[1])
		}
	}
	if len(codes) < 8 {
		t.Errorf("%d codes in plugins/fabric/errors.go: are they elsewhere?", len(codes))
	}
}

// TestPagesKernelFacts compares the numbers of kernel facts in the code and in pages with docs/kernel.md.
func TestPagesKernelFacts(t *testing.T) {
	known := map[string]bool{}
	last := 0
	for _, m := range regexp.MustCompile(`(?m)^\*\*(\d+)\. `).FindAllStringSubmatch(pages(t)["docs/kernel.md"], -1) {
		number, err := strconv.Atoi(m[1])
		if err != nil || number <= last { // a number may be missing, and is never given to another fact
			t.Errorf("docs/kernel.md: fact %s follows fact %d", m[1], last)
		}
		known[m[1]], last = true, number
	}
	texts := pages(t)
	walkGo(t, func(file string) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(b)
	})
	found := 0
	for file, text := range texts {
		for _, m := range regexp.MustCompile(`(?:kernel f|\(f)acts? (\d+)`).FindAllStringSubmatch(text, -1) {
			found++
			if !known[m[1]] {
				t.Errorf("%s names kernel fact %s, which docs/kernel.md does not have", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("nothing names a kernel fact: are they spelt differently?")
	}
}

// walkGo calls f for every Go file of the repository.
func walkGo(t *testing.T, f func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"bin", "build", "testdata", ".git"}, d.Name()):
			return fs.SkipDir
		case filepath.Ext(file) == ".go":
			f(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sourcesIn are the texts of the Go files of a directory.
func sourcesIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(root + dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}
