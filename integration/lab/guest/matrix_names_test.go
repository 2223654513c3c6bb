//go:build labguest

package guest

import (
	"fmt"
	"testing"
)

// Where names of RDMA devices are unique per network namespace: the device is called in its pod as one of the host is,
// and as one of another pod is, and its own name is that of a third one there. ADD meets the taken names, DEL fails to
// move it home under the name that it has, and the end of its namespace brings it home as ibdevN.
var namesDevice = mode{
	name: "device-rdma-names",
	host: namesHost,
	conf: conf(map[string]any{"device": "ib1", "rdmaName": "mlx5_0"}),
}

func TestMatrixNamesAdd(t *testing.T)  { runMatrix(t, namesDevice, opAdd) }
func TestMatrixNamesDel(t *testing.T)  { runMatrix(t, namesDevice, opDel) }
func TestMatrixNamesGone(t *testing.T) { runMatrix(t, namesDevice, opGone) }

var namesHosts int

// namesHost has mlx5_0 and mlx5_1, and two pods with an mlx5_0 and an mlx5_1 of their own.
func namesHost(t testing.TB) {
	Fabric{Num: 4}.Load(t)
	namesHosts++
	for i, name := range []string{"mlx5_0", "mlx5_1"} {
		pod := NewPod(t, fmt.Sprintf("host%d-%d", namesHosts, i))
		interfaceOf(pod, "net1", network(config{"deviceID": "platform/" + BusAddress(2+i), "rdmaName": name})).add(t)
		pod.hasHCA(t, name)
	}
}
