package redact

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Every field of the plugin but the way to credentials keeps its value: a maintainer sees the configuration that the
// plugin had.
func TestFieldsStay(t *testing.T) {
	conf := map[string]any{"VLAN": 7.0, "unknown": "x", "password": "x"}
	for _, f := range netconf.Fields() {
		conf[f] = "kept"
	}
	in, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	journal, err := json.Marshal([]any{map[string]any{"conf": conf}})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(CNI(in), &fields); err != nil {
		t.Fatal(err)
	}
	var entries []struct{ Conf map[string]any }
	if err := json.Unmarshal(Journal(journal), &entries); err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	for from, got := range map[string]map[string]any{"CNI": fields, "Journal": entries[0].Conf} {
		for f, want := range conf {
			if slices.Contains([]string{"unknown", "password", "kubeconfig"}, f) {
				want = Removed
			}
			if got[f] != want {
				t.Errorf("%s: field %s is %v, want %v", from, f, got[f], want)
			}
		}
	}
}
