package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const version = "v0.0.0-test.1"

// makeRelease is for this machine's architecture alone; make release is for all.
func makeRelease(t *testing.T) *release {
	t.Helper()
	r := &release{
		root: "../..", out: filepath.Join(t.TempDir(), "out"), version: version,
		image: "registry.example.com/fabric-agent", architectures: []string{runtime.GOARCH},
	}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func verify(t *testing.T, r *release) string {
	t.Helper()
	problems, err := r.verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) == 0 {
		return ""
	}
	return errors.Join(problems...).Error()
}

func TestWholeRelease(t *testing.T) {
	r, again := makeRelease(t), makeRelease(t)
	if problems := verify(t, r); problems != "" {
		t.Fatal(problems)
	}
	t.Run("the same bytes each time", func(t *testing.T) {
		for _, name := range append(r.files(), sums) {
			a, err := os.ReadFile(r.path(name))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(again.path(name)); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s differs (%v)", name, err)
			}
		}
	})
	if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("over files of another release: %v", err)
	}
	// From here on files are damaged. With new checksums, other checks have to find it.
	for _, tt := range []struct {
		name     string
		edit     func(string) string
		file     string
		checksum bool
		want     string
	}{
		{"damaged", func(s string) string { return s + " " }, krew, false, "SHA-256"},
		{
			"another image",
			func(s string) string { return strings.ReplaceAll(s, "registry.example.com", "evil") },
			manifest, true, "install.yaml starts evil/fabric-agent:" + version,
		},
		{"another program", swap("sha256: ", "sha256: 0"), krew, true, "has SHA-256 0"},
		{"another system", swap("os: darwin", "os: plan9"), krew, true, "no archive is for plan9/"},
		{"another start", swap("bin: fabricctl.exe", "bin: fabricctl"), krew, true, "and starts \"fabricctl\""},
		{"a license less", swap("from: LICENSE", "from: LICENCE"), krew, true, "has no file LICENCE"},
		{
			"a module less", swap("pkg:golang/k8s.io/api@", "pkg:golang/k8s.io/apx@"),
			r.list(), true, "lacks pkg:golang/k8s.io/api@",
		},
		{
			"another subject", swap(`"sha256": "`, `"sha256": "0`),
			provenance, true, "provenance.intoto.json: fabric-cni_",
		},
		{"another chart", replaceBy(t, again.path(krew)), r.chart(), true, "gzip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, err := os.ReadFile(r.path(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			damaged := tt.edit(string(old))
			if damaged == string(old) {
				t.Fatal("nothing is damaged")
			}
			write(t, r, tt.file, []byte(damaged), tt.checksum)
			problems, err := r.verify(t.Context())
			if all := errors.Join(append(problems, err)...); all == nil || !strings.Contains(all.Error(), tt.want) {
				t.Errorf("%v, want %q", all, tt.want)
			}
			write(t, r, tt.file, old, true)
		})
	}
	if problems := verify(t, r); problems != "" {
		t.Error(problems)
	}
	if err := os.Remove(r.path(r.archive())); err != nil {
		t.Fatal(err)
	}
	write(t, r, "notes.txt", nil, false)
	problems := verify(t, r)
	for _, want := range []string{r.archive() + " is missing", "notes.txt is no file of a release"} {
		if !strings.Contains(problems, want) {
			t.Errorf("%s, want %q", problems, want)
		}
	}
}

func swap(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

func replaceBy(t *testing.T, file string) func(string) string {
	return func(string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func write(t *testing.T, r *release, name string, content []byte, checksums bool) {
	t.Helper()
	if err := os.WriteFile(r.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if checksums {
		if err := r.writeSums(); err != nil {
			t.Fatal(err)
		}
	}
}

// The links of a release's chart lead to the pages and files of the release.
func TestChartLinks(t *testing.T) {
	r := &release{root: "../..", out: t.TempDir(), version: "v1.2.3", image: "registry.example.com/fabric-agent"}
	if err := r.writeChart("sha256:0"); err != nil {
		t.Fatal(err)
	}
	files, err := readTar(filepath.Join(r.out, r.chart()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Chart.yaml":        repository + "/blob/v1.2.3/CHANGELOG.md",
		"files/alerts.yaml": site + "v1.2.3/health.html#fabricportdown",
	} {
		text := string(files[chartName+"/"+name])
		if !strings.Contains(text, want) || strings.Contains(text, "/main/") {
			t.Errorf("%s: must link to %s and to nothing of main:\n%s", name, want, text)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, v := range []string{"", "1.2.3", "v1.2", "v1.2.3+dirty", "v01.2.3", "v1.2.3-", "d0e8fe0-dirty"} {
		err := run(t.Context(), []string{"-version", v}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "VERSION=v1.2.3") {
			t.Errorf("%q: %v", v, err)
		}
	}
}
