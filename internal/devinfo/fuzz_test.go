package devinfo

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever a device plugin, or another program, has written: an error, or a file that has what was to be told and keeps
// everything else; told once more it is the same.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{
		"", `{}`, `null`,
		`{"type":"vdpa","version":"1.0.0","pci":{"pci-address":"0000:3b:00.2","vhost-net":"/dev/vhost-net"}}`,
		`{"pci":[1],"type":null}`, `{"pci":{"rdma-device":{"x":1}}}`, `[]`, `{"a":1e999}`, `{"a":"\ud800","a":2}`,
	} {
		f.Add([]byte(s), "0000:3b:00.2", "0000:3b:00.0", "mlx5_2")
	}
	f.Fuzz(func(t *testing.T, before []byte, address, pf, rdma string) {
		d := PCI{Address: address, PF: pf, RDMA: rdma}
		after, err := Merge(before, d)
		if err != nil {
			return
		}
		again, err := Merge(after, d)
		if err != nil || !bytes.Equal(after, again) {
			t.Fatalf("once more: %v\n%s\n%s", err, after, again)
		}
		was, is := map[string]any{}, map[string]any{}
		_ = json.Unmarshal(before, &was) // an empty file counts as no file
		if err := json.Unmarshal(after, &is); err != nil {
			t.Fatal(err)
		}
		pci, _ := is["pci"].(map[string]any)
		wasPCI, _ := was["pci"].(map[string]any)
		for key, told := range map[string]string{"pci-address": address, "pf-pci-address": pf, "rdma-device": rdma} {
			if _, ok := pci[key].(string); told != "" && !ok {
				t.Errorf("%s is %v", key, pci[key])
			}
			if told != "" {
				delete(wasPCI, key)
				delete(pci, key)
			}
		}
		if len(wasPCI) > 0 || len(pci) > 0 {
			if diff := cmp.Diff(wasPCI, pci); diff != "" {
				t.Errorf("pci: -before +after:\n%s", diff)
			}
		}
		for key, value := range was {
			if key != "pci" && key != "version" && key != "type" && !cmp.Equal(value, is[key]) {
				t.Errorf("%s was %v, is %v", key, value, is[key])
			}
		}
	})
}
