//go:build labguest

package guest

// conf returns a network configuration of our plugin with what fields adds to it.
func conf(fields map[string]any) map[string]any {
	c := map[string]any{"cniVersion": "1.1.0", "name": "rails", "type": "fabric"}
	for k, v := range fields {
		c[k] = v
	}
	return c
}

// IPAM with one address, and with both families, a gateway and a route. The store is part of the snapshot.
var (
	ipv4 = map[string]any{"type": "host-local", "ranges": [][]map[string]any{{{"subnet": "10.56.0.0/24"}}},
		"routes": []map[string]any{{"dst": "10.57.0.0/16"}}}
	dual = map[string]any{
		"type": "host-local",
		"ranges": [][]map[string]any{
			{{"subnet": "10.56.0.0/24", "gateway": "10.56.0.254"}},
			{{"subnet": "fd00:56::/64"}},
		},
		"routes": []map[string]any{{"dst": "10.57.0.0/16"}},
	}
	perRail = map[string]any{"sourceBased": true}
)

// The modes of the matrix. Where a mode is short of something, another one has it: each cell takes its time.
var (
	// The most that a device can have, on both sides: every step of ADD and DEL occurs.
	ipoibDevice = mode{name: "device-ipoib", host: railHost, conf: conf(map[string]any{
		"device": "ibs108", "rdma": "exclusive", "rdmaName": "rail", "mtu": 2000, "routing": perRail, "ipam": dual})}
	// Connected mode has to come before its MTU.
	connectedDevice = mode{
		name: "device-ipoib-connected",
		host: railHost,
		conf: conf(map[string]any{"device": "ibs110"}),
	}
	// In shared mode the netdev leaves and the RDMA device stays.
	sharedDevice = mode{name: "device-ipoib-shared", host: railHost, conf: conf(map[string]any{
		"device": "ibs108", "mtu": 2000, "routing": perRail, "ipam": ipv4})}
	childExclusive = mode{name: "ipoib", host: railHost, conf: childConf}
	childShared    = mode{name: "ipoib-shared", host: railHost, conf: childConf}
	childConf      = conf(
		map[string]any{"mode": "ipoib", "master": "ibs108", "pkey": "0x8001", "routing": perRail, "ipam": ipv4},
	)
	// A netdev without an RDMA device. virtio survives the deletion of its network namespace.
	plainDevice = mode{
		name: "device-plain",
		host: plainHost,
		conf: conf(map[string]any{"device": "eno1", "ipam": ipv4}),
	}
	// The RDMA device and the netdev move one after the other, and neither takes the other with it.
	roceDevice = mode{
		name: "device-roce",
		host: roceHost,
		conf: conf(map[string]any{
			"device": "eno2", "rdmaName": "rail", "ipam": ipv4, "tos": 72, "roceMode": "v2", "trafficClass": 96,
		}),
	}
	// The RDMA device moves with the interface of its first port, and that of the second one follows.
	rocePorts = mode{
		name: "device-roce-ports",
		host: roceHosts,
		conf: conf(map[string]any{"device": "eno2", "allPorts": true, "rdmaName": "rail", "ipam": ipv4}),
	}
	bareDevice = mode{
		name: "device-rdma-only",
		host: bareHost,
		conf: conf(map[string]any{"rdmaDevice": "mlx5_1", "rdmaName": "rail"}),
	}
	rdmaIPoIB = mode{
		name:    "rdma-ipoib",
		host:    chainHost,
		earlier: ipoibMover,
		conf:    conf(map[string]any{"mode": "rdma", "rdmaName": "rail"}),
	}
	rdmaRoCE = mode{
		name:    "rdma-roce",
		host:    roceHost,
		earlier: etherMover,
		conf:    conf(map[string]any{"mode": "rdma", "rdmaName": "rail"}),
	}
)
