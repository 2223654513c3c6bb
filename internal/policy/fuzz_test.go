package policy

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Whatever is in the file: an error that names it, or a policy whose patterns all have a meaning and whose answers are
// refusals. A list of devices never gives one that none of its patterns fits.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"devices":["ibs*","0000:3b:00.[0-3]"],"nodeAddresses":["192.0.2.10","::ffff:10.0.0.1"]}`,
		`{"allowVirtual":true,"allowDefaultRoute":["\\e*"],"logDirs":["/var/log/fabric-cni"]}`,
		`{"allowVirtual":["v?"],"allowEnslaved":["[^a]"],"allowNodeAddress":["[]a]"]}`, `null`,
		`{"devices":["[a-"]}`, `{}{}`,
	} {
		f.Add([]byte(s), "ibs108")
	}
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		p, err := parse("/policy.json", b)
		if err != nil {
			if p != nil || !strings.Contains(err.Error(), "/policy.json") {
				t.Fatalf("%+v, %v", p, err)
			}
			return
		}
		for _, pattern := range slices.Concat(p.Devices, p.AllowDefaultRoute, p.AllowNodeAddress, p.AllowEnslaved,
			p.AllowVirtual) {
			if _, err := path.Match(pattern, name); err != nil {
				t.Fatalf("pattern %q, which was accepted, of %q: %v", pattern, name, err)
			}
		}
		d := netdev(func(n *device.Netdev) { n.Name = name })
		fits := len(p.Devices) == 0 || match(p.Devices, d)
		if err := p.Use(d); (err == nil) != fits {
			t.Errorf("%q of %q may be used: %v", p.Devices, name, err)
		}
		if p.Move(d) == nil && !fits {
			t.Errorf("%q of %q may be moved", p.Devices, name)
		}
	})
}
