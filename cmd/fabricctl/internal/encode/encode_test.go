package encode

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// A parser gets the value, and a terminal nothing that it would not show.
func TestRoundTrip(t *testing.T) {
	want := map[string]string{}
	for _, s := range []string{
		"plain", "a\nb: c\n---\n", "\x1b[2J\u202e\u009b", "\U000e0041", "yes", "{}", "\u2028 #", "a\tb\n",
	} {
		want[s] = s + "x"
	}
	for name, as := range map[string]func(any) ([]byte, error){"JSON": JSON, "YAML": YAML} {
		b, err := as(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, quote.Document(b)) {
			t.Errorf("%s has what a terminal does not show: %q", name, b)
		}
		got := map[string]string{}
		if name == "JSON" {
			err = json.Unmarshal(b, &got)
		} else {
			err = yamlv3.Unmarshal(b, &got)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
