package subnet

import "testing"

// saRecords are two nodes on a leaf below a spine, as saquery prints them, with what is not looked at left out. The
// second port runs with one lane.
const saRecords = `NodeRecord dump:
		lid.....................1
		node_type...............Channel Adapter
		node_guid...............0x0000000000000b10
		port_guid...............0x0000000000000b11
		port_num................1
		NodeDescription.........gpu-1 mlx5_0
NodeRecord dump:
		lid.....................2
		node_type...............Channel Adapter
		port_guid...............0x0000000000000b21
		port_num................1
		NodeDescription.........gpu-2 mlx5_0
NodeRecord dump:
		lid.....................3
		node_type...............Switch
		node_guid...............0x0000000000000a01
		port_guid...............0x0000000000000a01
		port_num................0
		NodeDescription.........leaf-1
NodeRecord dump:
		lid.....................4
		node_type...............Switch
		node_guid...............0x0000000000000a02
		NodeDescription.........spine-1
PortInfoRecord dump:
	RID
		EndPortLid..............3
		PortNum.................1
	PortInfo dump:
		LinkWidthActive:.................4X
		LinkState:.......................Active
		LinkSpeedActive:.................10.0 Gbps
		LinkSpeedExtActive:..............106.25 Gbps
PortInfoRecord dump:
	RID
		EndPortLid..............3
		PortNum.................2
	PortInfo dump:
		LinkWidthActive:.................1X
		LinkSpeedActive:.................10.0 Gbps
		LinkSpeedExtActive:..............No Extended Speed
LinkRecord dump:
		FromLID....................3
		FromPort...................1
		ToPort.....................1
		ToLID......................1
LinkRecord dump:
		FromLID....................3
		FromPort...................2
		ToPort.....................1
		ToLID......................2
LinkRecord dump:
		FromLID....................3
		FromPort...................33
		ToPort.....................1
		ToLID......................4
LinkRecord dump:
		FromLID....................9
		FromPort...................33
		ToPort.....................1
		ToLID......................4
`

func TestSaquery(t *testing.T) {
	topo := judge(t, saRecords)
	want := "gpu-1 mlx5_0:1 on leaf-1:1 4x NDR\ngpu-2 mlx5_0:1 on leaf-1:2 1x QDR\n"
	if got := places(topo); got != want || topo.Levels != 2 || len(topo.Switches) != 2 {
		t.Errorf("%d levels, %d switches:\n%s", topo.Levels, len(topo.Switches), got)
	}
}
