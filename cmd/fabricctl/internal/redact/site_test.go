package redact

import "testing"

func TestSite(t *testing.T) {
	s := NewSite("gpu-1.example.com")
	for _, c := range []struct{ text, want string }{
		{"- ibs108 ip 10.8.0.1/24: peer invalid IP", "- ibs108 ip (address 1)/24: peer invalid IP"},
		{"+ ibs108 ip 10.8.0.1/24: label ibs108", "+ ibs108 ip (address 1)/24: label ibs108"},
		{"ip 10.8.0.2", "ip (address 2)"},
		{"neighbour fd00:8::1: proxy", "neighbour (address 3): proxy"},
		{"route fd00:8::/64 via fd00:8::1: protocol 3", "route (address 4)/64 via (address 3): protocol 3"},
		{"route fd00:::", "route (address 5):"},
		{"address: 94:6d:ae:12:34:56", "address: (hardware address 1)"},
		{"address: 80:00:00:48:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:12:34:56", "address: (hardware address 2)"},
		{"node_guid: 946d:ae03:0012:3456", "node_guid: (GUID 1)"},
		{"gid: fe80:0000:0000:0000:946d:ae03:0012:3456", "gid: (GUID 2)"},
		{"GUID 0x946dae0300123456", "GUID (GUID 3)"},
		{"on gpu-1: GPU-1.example.com, gpu-10, xgpu-1", "on (host): (host), gpu-10, xgpu-1"},
		{"device: pci/0000:3b:00.0, rdma mlx5_0 port 1 state: Active", ""},
		{"the version is 28.39.1002, the time 12:30:05", ""},
		{"password=hunter2", "password=(removed)"},
	} {
		if c.want == "" {
			c.want = c.text
		}
		if got := s.Text(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
