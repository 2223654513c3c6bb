package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"golang.org/x/net/html"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// parsers read each format as its reader does. The others are for people: isVisible is their parser.
var parsers = map[string]func(*testing.T, []byte){
	"text": isVisible, "table": isVisible, "topo": isVisible, "commands": isShell, "wide": isVisible, "svg": isXML,
	"json":  func(t *testing.T, out []byte) { isJSON(t, out); isOfKind(t, "json", out) },
	"yaml":  func(t *testing.T, out []byte) { isYAML(t, out); isOfKind(t, "yaml", out) },
	"junit": isXML, "html": isHTML, "export": isShell, "dotenv": isVariables, "nccl.conf": isVariables,
}

// isLine wants an object of a kind in one line.
func isLine(t *testing.T, out []byte) {
	t.Helper()
	if n := bytes.Count(out, []byte("\n")); n != 1 {
		t.Errorf("%d lines: %q", n, out)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, out, "", "  "); err != nil {
		t.Errorf("JSON: %v", err)
		return
	}
	isOfKind(t, "json", b.Bytes())
}

// isVisible wants what a terminal shows as it is.
func isVisible(t *testing.T, out []byte) {
	t.Helper()
	if !utf8.Valid(out) {
		t.Errorf("no UTF-8: %q", out)
	}
	for _, r := range string(out) {
		if r != '\n' && r != '\t' && !quote.Shown(r) {
			t.Errorf("a terminal gets %q", r)
		}
	}
}

func isJSON(t *testing.T, out []byte) {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(out))
	if err := d.Decode(&v); err != nil {
		t.Errorf("JSON: %v", err)
	}
	if err := d.Decode(&v); !errors.Is(err, io.EOF) {
		t.Errorf("after the JSON: %v", err)
	}
}

func documentsOf(t *testing.T, out []byte) (docs []any) {
	t.Helper()
	d := yamlv3.NewDecoder(bytes.NewReader(out))
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			t.Errorf("YAML: %v", err)
			return docs
		}
		docs = append(docs, v)
	}
}

func isYAML(t *testing.T, out []byte) {
	t.Helper()
	if n := len(documentsOf(t, out)); n != 1 {
		t.Errorf("%d YAML documents", n)
	}
}

// areDocuments wants YAML of any number of objects.
func areDocuments(t *testing.T, out []byte) { t.Helper(); documentsOf(t, out) }

// isObjects wants objects of the kind that generate was asked for, with no field that it does not write.
func isObjects(t *testing.T, kind string, out []byte) {
	t.Helper()
	want := map[string]string{
		"fabric": "Fabric", "nad": "NetworkAttachmentDefinition", "device-plugin": "ConfigMap",
		"deployment": "Deployment", "pod": "Pod", "pytorchjob": "PyTorchJob", "mpijob": "MPIJob", "volcano": "Job",
		"perftest-pods": "Pod", "claim": "ResourceClaimTemplate",
	}[kind]
	for _, d := range documentsOf(t, out) {
		o, ok := d.(map[string]any)
		if !ok || o["kind"] != want {
			t.Errorf("generate %s wrote %v", kind, d)
		}
		for k := range o {
			if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "data"}, k) {
				t.Errorf("generate %s wrote the field %s", kind, k)
			}
		}
	}
}

// elements are those of the pages and pictures of package draw, and of JUnit reports.
var elements = strings.Fields(`html head meta title style body h1 h2 p div table tbody tr th td ul li svg g rect text
	tspan line path circle polyline a b br testsuite testcase failure skipped system-out defs marker span`)

func isElement(t *testing.T, name string, attrs []string) {
	t.Helper()
	if !slices.Contains(elements, name) {
		t.Errorf("element %s", name)
	}
	for _, a := range attrs {
		if a := strings.ToLower(a); strings.HasPrefix(a, "on") || a == "src" || a == "href" {
			t.Errorf("%s has the attribute %s", name, a)
		}
	}
}

func isXML(t *testing.T, out []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(out)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("XML: %v", err)
			return
		}
		if e, ok := token.(xml.StartElement); ok {
			var attrs []string
			for _, a := range e.Attr {
				attrs = append(attrs, a.Name.Local)
			}
			isElement(t, e.Name.Local, attrs)
		}
	}
}

func isHTML(t *testing.T, out []byte) {
	t.Helper()
	page, err := html.Parse(bytes.NewReader(out))
	if err != nil {
		t.Errorf("HTML: %v", err)
		return
	}
	for n := range page.Descendants() {
		if n.Type == html.ElementNode {
			var attrs []string
			for _, a := range n.Attr {
				attrs = append(attrs, a.Key)
			}
			isElement(t, n.Data, attrs)
		}
		if n.Type == html.CommentNode {
			t.Errorf("comment %q", n.Data)
		}
	}
}

// isShell has a shell read the commands, and run them where no program is but touch.
func isShell(t *testing.T, out []byte) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink("/usr/bin/touch", filepath.Join(bin, "touch")); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-n", "-"} {
		sh := exec.CommandContext(t.Context(), "/bin/sh", flag)
		sh.Dir, sh.Env, sh.Stdin = dir, []string{"PATH=" + bin}, bytes.NewReader(out)
		if diag, err := sh.CombinedOutput(); err != nil && flag == "-n" {
			t.Errorf("sh -n: %v: %s", err, diag)
		}
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("the shell has made %v (%v)", made, err)
	}
}

var variable = regexp.MustCompile(`^[A-Z_a-z]+=[=A-Za-z0-9_.,:-]*$`)

func isVariables(t *testing.T, out []byte) {
	t.Helper()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") && !variable.MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
}

func isRecording(t *testing.T, out []byte) {
	t.Helper()
	if _, err := node.Unpack(bytes.NewReader(out)); err != nil {
		t.Errorf("the recording: %v", err)
	}
}

// isBundle wants files below one directory, JSON where they say so.
func isBundle(t *testing.T, out []byte) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(out))
	if err != nil {
		t.Errorf("the bundle: %v", err)
		return
	}
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("the bundle: %v", err)
			return
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
		if !strings.HasPrefix(path.Clean(h.Name), "fabric-support/") || quote.Terminal(h.Name) != h.Name {
			t.Errorf("file %q in the bundle", h.Name)
		}
		if before, _, _ := bytes.Cut(b, []byte("\nerror: ")); strings.HasSuffix(h.Name, ".json") && len(before) > 0 {
			isJSON(t, before)
		}
	}
}
