package lab

import "time"

// The fault matrix: every mode of the plugin is stopped at every point, in every way.
var (
	matrix = Suite{
		Name:    "matrix",
		Run:     `^TestMatrixExclusive([^R]|RoCE|RDMAOn[^R])`,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
		Deal:    []Deal{{Run: `IPoIB(Add|Del)$`, Pieces: 2}},
		Timeout: 20 * time.Minute,
	}
	// Mode rdma on Ethernet, the longest of all.
	matrixRoCE = Suite{
		Name:    "matrix-rdma-roce",
		Run:     `^TestMatrixExclusiveRDMAOnRoCE`,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
		Timeout: 20 * time.Minute,
	}
	matrixShared = Suite{
		Name:    "matrix-shared",
		Run:     `^TestMatrixShared`,
		Devices: VirtioNet(1),
		Timeout: 20 * time.Minute,
	}
	// What a runtime, a reboot or the pod itself does to an attachment before DEL.
	returns = Suite{
		Name:    "returns",
		Run:     `^TestReturn`,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
		Timeout: 20 * time.Minute,
	}
)
