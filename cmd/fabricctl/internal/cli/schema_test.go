package cli

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// module and its root, from the directory of this test.
const (
	module     = "github.com/fabric-cni/fabric-cni"
	moduleRoot = "../../../.."
)

// schemaDir is where the schemas are, whatever the working directory of a test.
var schemaDir, _ = filepath.Abs(moduleRoot + "/docs/schemas")

// schemaOf is the schema of a kind, made from its Go type: every field that is not omitted is required, and there are
// no others.
func schemaOf(r *jsonschema.Reflector, k kind) ([]byte, error) {
	s := r.ReflectFromType(reflect.TypeOf(k.value))
	for _, name := range []string{"kind", "apiVersion"} {
		if _, ok := s.Properties.Get(name); ok {
			return nil, fmt.Errorf("%s: %T has a field %s of its own", k.name, k.value, name)
		}
		value := map[string]string{"kind": k.name, "apiVersion": encode.APIVersion}[name]
		s.Properties.Set(name, &jsonschema.Schema{Const: value})
		if err := s.Properties.MoveToFront(name); err != nil {
			return nil, err
		}
		s.Required = slices.Insert(s.Required, 0, name)
	}
	s.ID = jsonschema.ID("https://" + module + "/docs/schemas/" + k.name + ".json")
	s.Title = k.name
	s.Description = "What fabricctl prints with -o json and -o yaml: " + strings.ReplaceAll(k.is, "`", "") + "."
	b, err := json.MarshalIndent(s, "", "  ")
	return append(b, '\n'), err
}

func newReflector(t *testing.T) *jsonschema.Reflector {
	t.Helper()
	text := reflect.TypeFor[encoding.TextMarshaler]()
	r := &jsonschema.Reflector{ExpandedStruct: true, Mapper: func(of reflect.Type) *jsonschema.Schema {
		if of.Implements(text) && of != reflect.TypeFor[time.Time]() { // which has a format
			return &jsonschema.Schema{Type: "string"}
		}
		return nil
	}}
	r.Namer = func(of reflect.Type) string { // there is a Port in two packages
		if of.Name() == "" {
			return ""
		}
		return path.Base(of.PkgPath()) + "." + of.Name()
	}
	t.Chdir(moduleRoot) // the comments are found by the path of the package
	for _, dir := range []string{"cmd/fabricctl/internal", "internal", "pkg"} {
		if err := r.AddGoComments(module, dir, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// The schemas in docs/schemas are those of the types, and there are no others.
func TestSchemas(t *testing.T) {
	dir := schemaDir
	r := newReflector(t)
	want := map[string][]byte{"README.md": schemaList()}
	for _, k := range kinds {
		b, err := schemaOf(r, k)
		if err != nil {
			t.Fatal(err)
		}
		want[k.name+".json"] = b
	}
	for name, b := range want {
		golden.Check(t, filepath.Join(dir, name), string(b))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if want[e.Name()] == nil {
			t.Errorf("docs/schemas/%s is the schema of no kind", e.Name())
		}
	}
}

// schemaList is the page with all schemas.
func schemaList() []byte {
	var b strings.Builder
	b.WriteString("# Schemas of what fabricctl prints for programs\n\n" +
		"Each command prints with `-o json` and `-o yaml` one object, which begins with `apiVersion: " +
		encode.APIVersion + "`\nand a `kind`. These are JSON schemas of the kinds; " +
		"[fabricctl.md](../fabricctl.md#output-for-programs) says what stays as it is.\n" +
		"This page and the schemas are made from the Go types: " +
		"`go test ./cmd/fabricctl/internal/cli -run Schemas -update`.\n\n| kind | printed by |\n|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "| [%s](%s.json) | %s |\n", k.name, k.name, k.is)
	}
	return []byte(b.String())
}

// schemas are the compiled schemas, by kind.
var schemas = map[string]*validator.Schema{}

// isOfKind wants an object that begins with its version and kind, and is valid by the schema of this kind.
func isOfKind(t *testing.T, format string, out []byte) {
	t.Helper()
	as, begin := out, fmt.Sprintf("{\n  \"apiVersion\": %q,\n  \"kind\": \"", encode.APIVersion)
	if format == "yaml" {
		var err error
		if as, err = yaml.YAMLToJSON(out); err != nil {
			t.Errorf("YAML: %v", err)
			return
		}
		begin = "apiVersion: " + encode.APIVersion + "\nkind: "
	}
	if !bytes.HasPrefix(out, []byte(begin)) {
		t.Errorf("it begins with %.100q, want %q", out, begin)
		return
	}
	v, err := validator.UnmarshalJSON(bytes.NewReader(as))
	if err != nil {
		t.Errorf("JSON: %v", err)
		return
	}
	object, _ := v.(map[string]any)
	s, err := schemaNamed(fmt.Sprint(object["kind"]))
	if err != nil {
		t.Error(err)
		return
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%#v\n%.1000s", err, out)
	}
}

func schemaNamed(kind string) (*validator.Schema, error) {
	if s := schemas[kind]; s != nil {
		return s, nil
	}
	s, err := validator.NewCompiler().Compile(filepath.Join(schemaDir, kind+".json"))
	if err != nil {
		return nil, fmt.Errorf("kind %q: %w", kind, err)
	}
	schemas[kind] = s
	return s, nil
}

// called runs a command in this process.
func called(t *testing.T, args ...string) (status int, out, stderr bytes.Buffer) {
	a := &app{
		console: console{
			stdin: strings.NewReader(""), stdout: quote.Printer{W: &out}, stderr: quote.Printer{W: &stderr},
		},
		getenv: func(string) string { return "" }, version: "test",
	}
	status = a.run(t.Context(), append([]string{"fabricctl"}, args...))
	return status, out, stderr
}

// printed is what a command prints that does what it was asked for.
func printed(t *testing.T, args ...string) []byte {
	t.Helper()
	status, out, stderr := called(t, args...)
	if status != exitOK && status != exitFinding {
		t.Fatalf("fabricctl %s: %d: %s", strings.Join(args, " "), status, stderr.String())
	}
	return out.Bytes()
}

// What commands print for every machine is valid. TestHostileText has the other commands.
func TestMachinesAreValid(t *testing.T) {
	for _, m := range machines.All() {
		dir := filepath.Join(t.TempDir(), m.Name)
		if err := m.Plant(dir); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"discover", "doctor host --all", "doctor pod --all", "nccl-env"} {
			for _, format := range []string{"json", "yaml"} {
				isOfKind(t, format, printed(t, append(strings.Fields(command), "--root", dir, "-o", format)...))
			}
		}
	}
}

// What discover -o json prints of a machine makes the same Fabrics as its recording.
func TestDiscoveredIsRecording(t *testing.T) {
	for _, m := range machines.All() {
		dir := filepath.Join(t.TempDir(), m.Name)
		if err := m.Plant(dir); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "node.json")
		if err := os.WriteFile(file, printed(t, "discover", "--root", dir, "-o", "json"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"nad", "fabric --range 10.96.0.0/16"} {
			of := func(recording string) string {
				status, out, _ := called(t, append(append([]string{"generate"}, strings.Fields(kind)...), recording)...)
				return fmt.Sprint(status, "\n", out.String())
			}
			if d := cmp.Diff(of(dir), of(file)); d != "" {
				t.Errorf("%s: generate %s (-recording +discover -o json):\n%s", m.Name, kind, d)
			}
		}
	}
}
