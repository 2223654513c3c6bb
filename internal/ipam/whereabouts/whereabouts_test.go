package whereabouts_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/allocate"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/config"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/types"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// oracle has whereabouts itself load the section and hand out addresses until there are none left. It returns how many
// there are in each range, and the first and last.
func oracle(t *testing.T, ipam string) (out []string, err error) {
	t.Helper()
	flat := filepath.Join(t.TempDir(), "whereabouts.conf")
	if err := os.WriteFile(flat, []byte(`{"kubernetes":{"kubeconfig":"/nowhere"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadIPAMConfiguration(
		[]byte(`{"cniVersion":"1.0.0","name":"n","type":"fabric","ipam":`+ipam+`}`),
		"",
		flat,
	)
	if err != nil {
		return nil, err
	}
	for _, r := range c.IPRanges {
		var given []types.IPReservation
		for i := 0; ; i++ {
			_, more, err := allocate.AssignIP(r, given, "c", fmt.Sprint("default/p", i), "net1")
			var full allocate.AssignmentError
			if errors.As(err, &full) {
				break
			}
			if err != nil {
				return nil, err
			}
			given = more
		}
		if len(given) == 0 {
			return nil, errors.New("nothing to give")
		}
		out = append(out, fmt.Sprintf("%s %d %s-%s", r.Range, len(given), given[0].IP, given[len(given)-1].IP))
	}
	return out, nil
}

func TestAsWhereabouts(t *testing.T) {
	for _, ipam := range []string{
		`{"type":"whereabouts","range":"192.168.10.0/28"}`,
		`{"type":"whereabouts","range":"192.168.10.5/28","network_name":"ib-200g","enable_overlapping_ranges":false,` +
			`"optimistic_ipam":true}`,
		`{"type":"whereabouts","range":"192.168.10.225-192.168.10.229/28"}`,
		`{"type":"whereabouts","range":"192.168.10.0/27","range_start":"192.168.10.4","range_end":"192.168.10.20"}`,
		`{"type":"whereabouts","range":"192.168.10.0/27","exclude":["192.168.10.0/30","192.168.10.9","192.168.10.28/` +
			`31"]}`,
		`{"type":"whereabouts","ipRanges":[{"range":"192.168.10.0/29"},{"range":"fd00::/124","exclude":["fd00::8/` +
			`126"]}]}`,
		`{"type":"whereabouts","range":"10.0.0.0/29","ipRanges":[{"range":"fd00::/125","range_start":"fd00::3"}],` +
			`"routes":[{"dst":"10.9.0.0/16"}],"gateway":"10.0.0.1"}`,
	} {
		want, err := oracle(t, ipam)
		if err != nil {
			t.Fatalf("%s: %v", ipam, err)
		}
		c, err := whereabouts.Parse([]byte(ipam))
		if err != nil {
			t.Errorf("%s: %v", ipam, err)
			continue
		}
		var got []string
		for _, r := range c.Ranges {
			all := r.Free.Ranges()
			got = append(got,
				fmt.Sprintf("%s %d %s-%s", r.Prefix, pool.Count(r.Free), all[0].From(), all[len(all)-1].To()))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: %q, whereabouts gives %q", ipam, got, want)
		}
	}
}

// What is refused. Of the first group whereabouts says the same, but to the first pod; of the second it takes no
// notice.
func TestRefused(t *testing.T) {
	for ipam, want := range map[string]string{
		`{"range":"192.168.10.0"}`: `ipam.range "192.168.10.0": want an address with a ` +
			`prefix length`,
		`{"range":"192.168.11.1-192.168.10.9/28"}`: `ipam.range_start 192.168.11.1: not in the range ` +
			`192.168.10.0/28`,
		`{"range":"192.168.10.0/31"}`:                          `ipam.range 192.168.10.0/31: `,
		`{"range":"192.168.10.0/29","exclude":["10.0.0.0/x"]}`: `ipam.exclude "10.0.0.0/x": want a range or an address`,
		`{"range":"10.0.0.0/29","exclude":["10.0.0.0/28"]}`: `ipam.range 10.0.0.0/29: nothing is left of it ` +
			`after exclude`,
		`{"ipRanges":[{"range":"fd00::"}]}`: `ipam.ipRanges[0].range "fd00::": want an address ` +
			`with a prefix length`,
		`{"range":"10.0.0.0/24","gateway":"router"}`:       `ipam.gateway "router": want an address`,
		`{"range":["10.0.0.0/24"]}`:                        `ipam: json: cannot unmarshal array`,
		`{"range":"10.0.0.0/24","network_name":"IB_200G"}`: `ipam.network_name "IB_200G": want a-z, 0-9, - and .`,
	} {
		refused(t, ipam, want)
		if _, err := oracle(t, with(t, ipam)); err == nil && !strings.Contains(want, "network_name") {
			t.Errorf("%s: whereabouts takes it", ipam)
		}
	}
	for ipam, want := range map[string]string{
		`{}`: "ipam.range is missing",
		`{"range":"10.0.0.0/24","exlude":["10.0.0.0/28"]}`:              `"exlude" is unknown`,
		`{"ipRanges":[{"range":"10.0.0.0/24","omit":["10.0.0.0/28"]}]}`: `ipam.ipRanges[0]: "omit" is unknown`,
		`{"range":"10.0.0.0/24","range_start":"10.0.0"}`:                `ipam.range_start "10.0.0": want an address`,
		`{"range":"10.0.0.0/24","range_end":"10.0.1.7"}`: `ipam.range_end 10.0.1.7: not in the range ` +
			`10.0.0.0/24`,
		`{"range":"10.0.0.0/24","node_slice_size":"/20"}`: `ipam.node_slice_size "/20": want a prefix ` +
			`length from /24`,
		`{"range":"10.0.0.0/24","node_slice_size":26}`: `ipam.node_slice_size: want a string`,
	} {
		refused(t, ipam, want)
	}
}

func with(t *testing.T, ipam string) string {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(ipam), &m); err != nil {
		t.Fatal(err)
	}
	m["type"] = "whereabouts"
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func refused(t *testing.T, ipam, want string) {
	t.Helper()
	if _, err := whereabouts.Parse([]byte(with(t, ipam))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", ipam, err, want)
	}
}

func parse(t *testing.T, ipam string) *whereabouts.Config {
	t.Helper()
	c, err := whereabouts.Parse([]byte(with(t, ipam)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEnough(t *testing.T) {
	c := parse(t, `{"range":"192.168.10.0/28","exclude":["192.168.10.0/30"],"ipRanges":[{"range":"fd00::/64"}]}`)
	if err := c.Enough(11, 4); err != nil {
		t.Error(err)
	}
	want := "ipam.range 192.168.10.0/28 has 11 addresses to give, and all nodes together need 12: choose a wider range"
	if err := c.Enough(12, 4); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	c = parse(t, `{"range":"192.168.0.0/16","node_slice_size":"/30"}`)
	want = "ipam.node_slice_size 192.168.0.0/30 has 2 addresses to give, and this node needs 4: choose a wider range"
	if err := c.Enough(100, 4); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := c.Enough(100, 2); err != nil {
		t.Error(err)
	}
}

func TestPools(t *testing.T) {
	for _, tt := range []struct {
		ipam, pool, of string
		capacity       int // 0: another's
	}{
		{`{"range":"10.0.0.0/24"}`, "10.0.0.0-24", "10.0.0.0/24", 254},
		{`{"range":"10.0.0.0/24"}`, "storage-10.0.0.0-24", "10.0.0.0/24", 0},
		{`{"range":"10.0.0.0/24"}`, "10.0.1.0-24", "10.0.1.0/24", 0},
		{`{"range":"10.0.0.0/24","network_name":"ib"}`, "ib-10.0.0.0-24", "10.0.0.0/24", 254},
		{`{"range":"10.0.0.0/24","network_name":"ib"}`, "10.0.0.0-24", "10.0.0.0/24", 0},
		{`{"range":"fd00::/120","network_name":"ib","exclude":["fd00::80/121"]}`, "ib-fd00---120", "fd00::/120", 127},
		{`{"range":"10.0.0.0/24","network_name":"ib",` +
			`"node_slice_size":"/26"}`, "ib-node-a-10.0.0.64-26", "10.0.0.64/26", 62},
		{`{"range":"10.0.0.0/24","node_slice_size":"26","exclude":[` +
			`"10.0.0.96/27"]}`, "node-a-10.0.0.64-26", "10.0.0.64/26", 31},
	} {
		c := parse(t, tt.ipam)
		of := netip.MustParsePrefix(tt.of)
		got := 0
		if c.Owns(c.Ranges[0], tt.pool, of) {
			got = c.Capacity(c.Ranges[0], of)
		}
		if got != tt.capacity {
			t.Errorf("%s, pool %s: %d addresses, want %d", tt.ipam, tt.pool, got, tt.capacity)
		}
	}
}
