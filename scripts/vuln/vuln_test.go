package main

import (
	"archive/zip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// old builds a program with a module of this version in it, from a module proxy of files.
func old(t *testing.T, module, version string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at, mod := "proxy/"+module+"/@v/"+version, "module "+module+"\n"
	write(at+".info", fmt.Sprintf("{%q: %q}", "Version", version))
	write(at+".mod", mod)
	write(at+".zip", "")
	f, err := os.Create(filepath.Join(dir, at+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for name, text := range map[string]string{"go.mod": mod, "x.go": "package x\n"} {
		w, err := z.Create(module + "@" + version + "/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write("main/go.mod", "module main\n\ngo 1.26\n\nrequire "+module+" "+version+"\n")
	write("main/main.go", "package main\n\nimport _ \""+module+"\"\n\nfunc main() {}\n")
	binary = filepath.Join(dir, "program")
	c := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", binary)
	c.Dir = filepath.Join(dir, "main")
	c.Env = append(os.Environ(), "GOPROXY=file://"+filepath.Join(dir, "proxy"), "GOSUMDB=off", "GOWORK=off",
		"GOFLAGS=-modcacherw -trimpath", "GOMODCACHE="+filepath.Join(dir, "cache"), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// A program with an old module fails, by the list as it is; with the fixed one it does not. An exception with a reason
// lets it pass, and one that is of no use fails.
func TestOldModule(t *testing.T) {
	const grpc = "google.golang.org/grpc"
	bad, good := old(t, grpc, "v1.72.2"), old(t, grpc, "v1.85.0")
	list, err := readAdvisories("advisories.txt")
	if err != nil {
		t.Fatal(err)
	}
	hits, _, err := check(list, nil, []string{bad, good})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, h := range hits {
		if h.Module != grpc || h.Version != "v1.72.2" || h.fixed() == "" {
			t.Errorf("%+v", h)
		}
		seen = append(seen, h.ID)
	}
	if !strings.Contains(strings.Join(seen, " "), "CVE-2026-33186") {
		t.Errorf("found %v", seen)
	}
	none := filepath.Join(t.TempDir(), "exceptions")
	for text, fails := range map[string]bool{
		"": true,
		"CVE-2026-33186 google.golang.org/grpc no authorization by path\n": false,
		"CVE-2026-33186 golang.org/x/net another module\n":                 true,
	} {
		if err := os.WriteFile(none, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		one := filepath.Join(t.TempDir(), "list")
		text := "CVE-2026-33186 google.golang.org/grpc 0..1.79.3 here\n"
		if err := os.WriteFile(one, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := compare(one, none, []string{bad}); (err != nil) != fails {
			t.Errorf("%q: %v", text, err)
		}
	}
	text := "CVE-2026-33186 google.golang.org/grpc no authorization by path\n"
	if err := os.WriteFile(none, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := compare("advisories.txt", none, []string{good}); err == nil {
		t.Error("an exception that affects nothing passes")
	}
}

// A range begins with its first version and ends before the fixed one; before a fix all are affected.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		in   versions
		v    string
		want bool
	}{
		{versions{"0", "1.79.3"}, "v1.79.2", true},
		{versions{"0", "1.79.3"}, "v1.79.3", false},
		{versions{"1.26.0-0", "1.26.3"}, "v1.26.0", true},
		{versions{"1.26.0-0", "1.26.3"}, "v1.25.10", false},
		{versions{"0", ""}, "v9.0.0", true},
		{versions{"0", "0.0.0-20240102000000-000000000000"}, "v0.0.0-20240101000000-abcdefabcdef", true},
	} {
		if got := c.in.has(c.v); got != c.want {
			t.Errorf("%s in %s: %v", c.v, c.in, got)
		}
	}
}

// The standard library of this program is among its modules.
func TestStandardLibrary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := []advisory{{ID: "GO-1", Module: stdlib, Ranges: []versions{{"1.0.0", "99.0.0"}}, Source: "here"}}
	hits, _, err := check(list, nil, []string{self})
	if err != nil || len(hits) != 1 {
		t.Errorf("%v %v", hits, err)
	}
}

// -update takes what the database has for our modules, keeps what others have reported, and drops what is withdrawn.
func TestUpdate(t *testing.T) {
	files := map[string]string{
		"/index/modules.json": `[{"path": "example.com/other", "vulns": [{"id": "GO-2026-9"}]},
			{"path": "golang.org/x/net", "vulns": [{"id": "GO-2026-1"}, {"id": "GO-2026-2"}]}]`,
		"/ID/GO-2026-1.json": `{"id": "GO-2026-1", "affected": [{"package": {"name": "stdlib"}, "ranges": [{"events": [
			{"introduced": "0"}, {"fixed": "1.25.10"}]}]},
			{"package": {"name": "golang.org/x/net"}, "ranges": [{"events": [
			{"introduced": "0"}, {"fixed": "0.53.0"}, {"introduced": "0.60.0"}]}]}]}`,
		"/ID/GO-2026-2.json": `{"id": "GO-2026-2", "withdrawn": "2026-05-01T00:00:00Z", "affected": [
			{"package": {"name": "golang.org/x/net"}, "ranges": [{"events": [{"introduced": "0"}]}]}]}`,
	}
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if files[r.URL.Path] == "" {
			http.NotFound(w, r)
		}
		_, _ = w.Write([]byte(files[r.URL.Path]))
	}))
	defer db.Close()
	dir := t.TempDir()
	list, sum := filepath.Join(dir, "list"), filepath.Join(dir, "go.sum")
	before := "# comment\nCVE-1 golang.org/x/net 0..0.1.0 review\n" +
		"GO-2026-1 golang.org/x/net 0..0.2.0 another project\n" +
		"GO-2025-1 golang.org/x/net 0..0.3.0 https://pkg.go.dev/vuln/GO-2025-1\n"
	for name, text := range map[string]string{list: before, sum: "golang.org/x/net v0.62.0 h1:=\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := update(t.Context(), db.URL, list, sum); err != nil {
		t.Fatal(err)
	}
	want := "# comment\nCVE-1 golang.org/x/net 0..0.1.0 review\n" +
		"GO-2026-1 golang.org/x/net 0..0.53.0,0.60.0.. https://pkg.go.dev/vuln/GO-2026-1\n"
	got, err := os.ReadFile(list)
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := readAdvisories(list); err != nil {
		t.Error(err)
	}
}
