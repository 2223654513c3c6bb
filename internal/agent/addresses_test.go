package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// What kubelet says of the node's addresses is what the plugin's policy has, whatever happens to the file.
func TestNodeAddresses(t *testing.T) {
	addresses, err := parseAddresses("2001:db8::1, 192.0.2.1,192.0.2.1,fe80::1,127.0.0.1,")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	file := filepath.Join(dir, policy.NodeAddressesFile)
	const plugins = "/var/lib/k0s/kubelet/device-plugins"
	r := &addressReconciler{addresses: addresses, plugins: plugins, dir: dir, log: slog.New(slog.DiscardHandler)}
	for _, before := range []struct {
		what string
		do   func() error
	}{
		{"at first", func() error { return nil }},
		{"damaged", func() error { return os.WriteFile(file, []byte("{"), 0o600) }},
		{"removed", func() error { return os.Remove(file) }},
		{"of another node", func() error { return os.WriteFile(file, []byte(`{"addresses":["192.0.2.9"]}`), 0o600) }},
	} {
		if err := before.do(); err != nil {
			t.Fatal(err)
		}
		r.reconcile()
		p, err := policy.Load(filepath.Join(dir, "policy.json"), dir)
		if err != nil {
			t.Fatalf("%s: %v", before.what, err)
		}
		var got []string
		for _, a := range p.NodeAddresses {
			got = append(got, a.String())
		}
		if want := []string{"192.0.2.1", "2001:db8::1"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", before.what, got, want)
		}
		if p.DevicePluginDir != plugins {
			t.Errorf("%s: kubelet's directory is %q", before.what, p.DevicePluginDir)
		}
	}
	r.plugins = kubelet.DefaultDir
	r.reconcile()
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "evice") {
		t.Errorf("the usual directory is noted: %s, %v", b, err)
	}
	owner := filepath.Join(dir, "policy.json")
	for content, want := range map[string]string{`{}`: kubelet.DefaultDir, `{"devicePluginDir":"/k"}`: "/k"} {
		if err := os.WriteFile(owner, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := policy.Load(owner, dir); err != nil || p.DevicePluginDir != want {
			t.Errorf("%s: %+v, %v", content, p, err)
		}
	}
	if _, err := parseAddresses("192.0.2.1,node-1"); err == nil || !strings.Contains(err.Error(), "--node-ips") {
		t.Errorf("a name instead of an address: %v", err)
	}
}
