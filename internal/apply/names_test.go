package apply

import "testing"

// What a pod can call its interface before its namespace ends: under "all" and "default", which the kernel takes while
// there are no IPv6 settings, it comes to the host without any settings.
func TestReturnOddNames(t *testing.T) {
	for name, mtu := range map[string]string{"all": "1279", "default": "1279", ";$x": "1400", "fabric9": "1400"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			b.take(t)
			b.pod.IP(t, "link", "set", "net1", "down", "mtu", mtu)
			b.pod.IP(t, "link", "set", "net1", "name", name)
			b.pod.IP(t, "link", "property", "add", "dev", name, "altname", "foreign")
			b.pod.IP(t, "link", "set", name, "netns", b.host.Name) // as when the namespace ends
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
		})
	}
}
