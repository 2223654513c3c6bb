package node

import "testing"

// The MTUs that people configure, and what the kernel makes of them (ibv_devinfo: active_mtu).
func TestRoCEMTU(t *testing.T) {
	for netdev, want := range map[int]int{
		9000: 4096, 4200: 4096, 4192: 4096, 4191: 2048, 1500: 1024, 1280: 1024, 1119: 512, 352: 256, 351: 0, 0: 0,
	} {
		if got := roceMTU(netdev); got != want {
			t.Errorf("netdev MTU %d: %d, want %d", netdev, got, want)
		}
	}
}
