package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// A call that has read its configuration before the node lost the range gives no address of it. Attachments that have
// one keep it, and give it back.
func TestLimit(t *testing.T) {
	data := t.TempDir()
	of := func(first, last string) func(container string) Delegate {
		return func(container string) Delegate {
			return Delegate{
				Type: "host-local", Env: env("/nowhere", container, "net1"), Policy: allow(data),
				Conf: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","ipam":{"type":"host-local","dataDir":%q,`+
					`"ranges":[[{"subnet":"10.4.0.0/16","rangeStart":%q,"rangeEnd":%q}]]}}`, data, first, last),
			}
		}
	}
	limit := func(to ...string) {
		t.Helper()
		var prefixes []netip.Prefix
		for _, p := range to {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		if err := hostlocal.Limit(t.Context(), data, "n", prefixes); err != nil {
			t.Fatal(err)
		}
	}
	add := func(d Delegate, want string) {
		t.Helper()
		r, err := d.Add(t.Context())
		var own *types.Error
		got := ""
		switch {
		case err == nil:
			got = r.Addresses[0].Prefix.Addr().String()
		case errors.As(err, &own):
			got = err.Error()
		default:
			t.Error(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	limit() // no call has asked for the network yet: it has no directory
	if _, err := os.Stat(filepath.Join(data, "n")); err == nil {
		t.Error("there is a directory")
	}
	before, after := of("10.4.1.0", "10.4.1.63"), of("10.4.2.0", "10.4.2.63")
	add(before("c1"), "10.4.1.0") // a node without an agent has no limit
	limit("10.4.1.0/26", "fd00::/112")
	add(before("c2"), "10.4.1.1")
	limit("10.4.2.0/26")
	add(before("c3"), "range 10.4.1.0-10.4.1.63 of network n is not this node's: it has [10.4.2.0/26] now")
	if _, _, err := before("c3").Predict(); err == nil {
		t.Error("predicted all the same")
	}
	add(after("c3"), "10.4.2.0")
	if err := before("c1").Check(t.Context()); err != nil {
		t.Error(err)
	}
	limit()
	add(after("c4"), "it has [] now")
	given, err := hostlocal.Given(filepath.Join(data, "n"))
	if got := fmt.Sprint(given); err != nil || got != "[10.4.1.0 10.4.1.1 10.4.2.0]" {
		t.Error(got, err)
	}
	for _, d := range []Delegate{before("c1"), before("c2"), after("c3")} {
		if err := d.Del(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if given, err := hostlocal.Given(filepath.Join(data, "n")); err != nil || len(given) != 0 {
		t.Error(given, err)
	}
	if err := os.WriteFile(filepath.Join(data, "n", "ranges"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := after("c5").Add(t.Context()); err == nil {
		t.Error("a limit that can't be read is none")
	}
}

// The plugin's own executable works in a directory with a limit as in any other.
func TestLimitAndExecutable(t *testing.T) {
	bin := plugins(t)
	data := t.TempDir()
	to := []netip.Prefix{netip.MustParsePrefix("10.4.0.0/24")}
	if err := hostlocal.Limit(t.Context(), data, "n", to); err != nil {
		t.Fatal(err)
	}
	d := Delegate{
		Type: "host-local", Env: netconf.Env{Path: bin},
		Conf: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","ipam":{"type":"host-local","dataDir":%q,`+
			`"subnet":"10.4.0.0/24"}}`, data),
	}
	for _, command := range []string{"ADD", "CHECK", "DEL"} {
		e := env(bin, "c1", "net1")
		e.Command = command
		conf := d.Conf
		if command == "CHECK" {
			conf = []byte(strings.Replace(string(conf), `{`, `{"prevResult":{"cniVersion":"1.1.0",`+
				`"ips":[{"address":"10.4.0.2/24"}]},`, 1))
		}
		if b, err := d.run(t.Context(), filepath.Join(bin, "host-local"), e, conf); err != nil {
			t.Errorf("%s: %s %v", command, b, err)
		}
	}
	var left []string
	entries, err := os.ReadDir(filepath.Join(data, "n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"last_reserved_ip.0", "lock", "ranges"}; !slices.Equal(left, want) {
		t.Errorf("%q is left, want %q", left, want)
	}
}
