package ipam

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// plugins returns a directory with the IPAM plugins of containernetworking/plugins, in the version that go.mod pins as
// a tool.
func plugins(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var binDir string

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ipam-")
	if err != nil {
		return "", err
	}
	binDir = dir
	const base = "github.com/containernetworking/plugins/plugins/ipam/"
	out, err := exec.Command("go", "build", "-o", dir, base+"static", base+"host-local").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if binDir != "" {
		os.RemoveAll(binDir)
	}
	os.Exit(code)
}

func env(path, container, ifname string) netconf.Env {
	return netconf.Env{ContainerID: container, IfName: ifname, Netns: "/run/netns/gone-" + container, Path: path}
}

func TestRealPlugins(t *testing.T) {
	bin := plugins(t)
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run("static/"+version, func(t *testing.T) { testStatic(t, bin, version) })
		t.Run("host-local/"+version, func(t *testing.T) { testHostLocal(t, bin, version) })
	}
	t.Run("parallel", func(t *testing.T) { testParallel(t, bin) })
}

func testStatic(t *testing.T, bin, version string) {
	var stderr bytes.Buffer
	d := Delegate{
		Type:   "static",
		Env:    env(bin, "c1", "net1"),
		Stderr: &stderr,
		Conf: fmt.Appendf(nil, `{"cniVersion":%q,"name":"n","type":"fabric","ipam":{
		"type":"static","addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00:1::3/64"}],
		"routes":[{"dst":"10.8.0.0/16","gw":"10.1.2.9","mtu":1400}],
		"dns":{"nameservers":["10.1.2.53"],"search":["a.example"]}}}`, version),
	}
	got, err := d.Add(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &result.Result{
		Addresses: []result.Address{
			{
				Prefix:    netip.MustParsePrefix("10.1.2.3/24"),
				Gateway:   netip.MustParseAddr("10.1.2.1"),
				Interface: result.NoInterface,
			},
			{Prefix: netip.MustParsePrefix("fd00:1::3/64"), Interface: result.NoInterface},
		},
		Routes: []result.Route{
			{Dst: netip.MustParsePrefix("10.8.0.0/16"), Gateway: netip.MustParseAddr("10.1.2.9"), MTU: 1400},
		},
		DNS: netconf.DNS{Nameservers: []string{"10.1.2.53"}, Search: []string{"a.example"}},
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := d.Del(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if stderr.Len() != 0 {
		t.Errorf("stderr: %s", &stderr)
	}
}

func testHostLocal(t *testing.T, bin, version string) {
	data := t.TempDir()
	d := Delegate{
		Type:   "host-local",
		Env:    env(bin, "c1", "net1"),
		Policy: allow(data),
		Conf: fmt.Appendf(nil, `{"cniVersion":%q,"name":"n","type":"fabric","ipam":{
		"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.4.0.0/29"}],[{"subnet":"fd00:4::/64"}]],
		"routes":[{"dst":"0.0.0.0/0"}]}}`, version, data),
	}
	r, err := d.Add(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Addresses) != 2 || len(r.Routes) != 1 {
		t.Errorf("result: %+v", r)
	}
	if n := held(t, data); n != 2 {
		t.Errorf("%d addresses held, want 2", n)
	}
	// Another attachment in a conf of the same network: a stale one gets its DEL through its own Env.
	stale := d
	stale.Env = env(bin, "c2", "net2")
	if _, err := stale.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Del(t.Context()); err != nil {
		t.Error(err)
	}
	if n := held(t, data); n != 2 {
		t.Errorf("%d addresses held, want the 2 of the other attachment", n)
	}
	for range 2 { // twice, and with an empty netns
		stale.Env.Netns = ""
		if err := stale.Del(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := held(t, data); n != 0 {
		t.Errorf("%d addresses held, want none", n)
	}
}

// The second ADD gets no address from the full range, and the first range's must not stay reserved.
func TestHostLocalFailureHoldsNothing(t *testing.T) {
	bin, data := plugins(t), t.TempDir()
	d := Delegate{
		Type:   "host-local",
		Env:    env(bin, "c1", "net1"),
		Policy: allow(data),
		Conf: fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"n","type":"fabric","ipam":{
		"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.4.0.0/24"}],
		[{"subnet":"10.5.0.0/24","rangeStart":"10.5.0.9","rangeEnd":"10.5.0.9"}]]}}`, data),
	}
	if _, err := d.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Env = env(bin, "c2", "net1")
	if _, err := d.Add(t.Context()); err == nil || !strings.Contains(err.Error(), "10.5.0.9") {
		t.Fatalf("error: %v", err)
	}
	if n := held(t, data); n != 2 {
		t.Errorf("%d addresses held, want the 2 of the first", n)
	}
}

func testParallel(t *testing.T, bin string) {
	data := t.TempDir()
	seen := make(map[netip.Prefix]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			e := env(bin, fmt.Sprintf("c%d", i), "net1")
			d := Delegate{Type: "host-local", Env: e, Policy: allow(data), Conf: fmt.Appendf(
				nil,
				`{"cniVersion":"1.1.0","name":"n","type":"fabric","ipam":{"type":"host-local","dataDir":%q,`+
					`"subnet":"10.4.0.0/24"}}`,
				data,
			)}
			r, err := d.Add(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen[r.Addresses[0].Prefix] = true
		})
	}
	wg.Wait()
	if len(seen) != 16 || held(t, data) != 16 {
		t.Errorf("%d addresses, %d held, want 16", len(seen), held(t, data))
	}
}

// held counts the addresses that host-local has on file for the network.
func held(t *testing.T, data string) int {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(data, "n"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if _, err := netip.ParseAddr(f.Name()); err == nil {
			n++
		}
	}
	return n
}

// One exec per ADD: what this costs beside running the plugin.
func BenchmarkAdd(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte("#!/bin/sh\n"+one), 0o755); err != nil {
		b.Fatal(err)
	}
	d := Delegate{Type: "fake", Env: env(dir, "c1", "net1"), Conf: []byte(`{"cniVersion":"1.1.0","name":"n"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Add(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
