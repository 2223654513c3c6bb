package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
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
	r := &addressReconciler{
		addresses: addresses, plugins: plugins, dir: dir, log: slog.New(slog.DiscardHandler), now: time.Now,
	}
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
		r.reconcile(t.Context())
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
	keeps(t, r, file)
	r.plugins = kubelet.DefaultDir
	r.reconcile(t.Context())
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
	_, err = Parse([]string{"run", "--node-name=n", "--node-ips=192.0.2.1,node-1"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--node-ips") {
		t.Errorf("a name instead of an address: %v", err)
	}
}

// What is noted stays while the API server has not said what there is, and is replaced then.
func keeps(t *testing.T, r *addressReconciler, file string) {
	t.Helper()
	addr := netip.MustParseAddr
	for _, c := range []struct {
		local []netip.Addr
		err   error
		want  string
	}{
		{[]netip.Addr{addr("192.0.2.7")}, nil, "192.0.2.7"},
		{nil, nil, "192.0.2.7"},
		{[]netip.Addr{addr("192.0.2.8")}, errors.New("no endpoints"), "192.0.2.7 192.0.2.8"},
		{[]netip.Addr{addr("192.0.2.8"), addr("127.0.0.1"), addr("fe80::1")}, nil, "192.0.2.8"},
	} {
		r.server = func(context.Context) ([]netip.Addr, error) { return c.local, c.err }
		r.reconcile(t.Context())
		b, err := os.ReadFile(file)
		var n policy.NodeAddresses
		if err := errors.Join(err, json.Unmarshal(b, &n)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(n.Addresses); got != "[192.0.2.1 "+c.want+" 2001:db8::1]" {
			t.Errorf("%v, %v: %s", c.local, c.err, got)
		}
	}
	r.server = nil
}

// The plugin learns that Fabrics are in force, and which resource a device is of, before kubelet hands it out; what an
// earlier agent has noted stays until that is known.
func TestNotedFabrics(t *testing.T) {
	dir := t.TempDir()
	r := &addressReconciler{plugins: kubelet.DefaultDir, dir: dir, log: slog.New(slog.DiscardHandler), now: time.Now}
	load := func(want bool, resource string) {
		t.Helper()
		p, err := policy.Load(filepath.Join(dir, "policy.json"), dir)
		if err != nil || p.Allocated() != want || p.Resource("pci/0000:3b:00.0") != resource {
			t.Errorf("%+v, %v, want %t, %q", p, err, want, resource)
		}
	}
	address := device.Address{Bus: "pci", Name: "0000:3b:00.0"}
	v := &view{
		fabrics:  []fabrics.Fabric{{Name: "ib"}},
		assigned: map[string][]survey.Device{"ib": {{Location: device.Location{Address: address}}}},
	}
	r.reconcile(t.Context())
	load(false, "")
	r.give(t.Context(), v)
	load(true, "fabric.dev/ib")
	r.noted = policy.NodeAddresses{} // another agent
	r.reconcile(t.Context())
	load(true, "fabric.dev/ib")
	if err := os.WriteFile(filepath.Join(dir, "policy.json"), []byte(`{"requireAllocated":false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	load(false, "fabric.dev/ib")
	if err := os.Remove(filepath.Join(dir, "policy.json")); err != nil {
		t.Fatal(err)
	}
	r.give(t.Context(), &view{})
	load(false, "")
}
