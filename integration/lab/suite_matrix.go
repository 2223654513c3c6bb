package lab

import "time"

// The fault matrix: every mode of the plugin is stopped at every point, in every way. Emulation makes it long, so it is
// dealt to several guests.
var (
	matrix = Suite{
		Name:    "matrix",
		Run:     `^TestMatrixExclusive`,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
		Shards:  3,
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
