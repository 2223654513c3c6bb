//go:build labguest

package guest

import "testing"

// One test a mode and operation, so that they can be dealt to several guests. The long ones come first.

func TestMatrixExclusiveIPoIBAdd(t *testing.T)        { runMatrix(t, ipoibDevice, opAdd) }
func TestMatrixExclusiveIPoIBDel(t *testing.T)        { runMatrix(t, ipoibDevice, opDel) }
func TestMatrixExclusiveIPoIBGone(t *testing.T)       { runMatrix(t, ipoibDevice, opGone) }
func TestMatrixExclusiveRoCEAdd(t *testing.T)         { runMatrix(t, roceDevice, opAdd) }
func TestMatrixExclusiveRoCEDel(t *testing.T)         { runMatrix(t, roceDevice, opDel) }
func TestMatrixExclusiveRoCEGone(t *testing.T)        { runMatrix(t, roceDevice, opGone) }
func TestMatrixExclusivePlainAdd(t *testing.T)        { runMatrix(t, plainDevice, opAdd) }
func TestMatrixExclusivePlainDel(t *testing.T)        { runMatrix(t, plainDevice, opDel) }
func TestMatrixExclusivePlainGone(t *testing.T)       { runMatrix(t, plainDevice, opGone) }
func TestMatrixExclusiveConnectedAdd(t *testing.T)    { runMatrix(t, connectedDevice, opAdd) }
func TestMatrixExclusiveConnectedDel(t *testing.T)    { runMatrix(t, connectedDevice, opDel) }
func TestMatrixExclusiveChildAdd(t *testing.T)        { runMatrix(t, childExclusive, opAdd) }
func TestMatrixExclusiveChildDel(t *testing.T)        { runMatrix(t, childExclusive, opDel) }
func TestMatrixExclusiveChildGone(t *testing.T)       { runMatrix(t, childExclusive, opGone) }
func TestMatrixExclusiveRDMAOnIPoIBAdd(t *testing.T)  { runMatrix(t, rdmaIPoIB, opAdd) }
func TestMatrixExclusiveRDMAOnIPoIBDel(t *testing.T)  { runMatrix(t, rdmaIPoIB, opDel) }
func TestMatrixExclusiveRDMAOnIPoIBGone(t *testing.T) { runMatrix(t, rdmaIPoIB, opGone) }
func TestMatrixExclusiveRDMAOnRoCEAdd(t *testing.T)   { runMatrix(t, rdmaRoCE, opAdd) }
func TestMatrixExclusiveRDMAOnRoCEDel(t *testing.T)   { runMatrix(t, rdmaRoCE, opDel) }
func TestMatrixExclusiveRDMAOnRoCEGone(t *testing.T)  { runMatrix(t, rdmaRoCE, opGone) }
func TestMatrixExclusivePortsAdd(t *testing.T)        { runMatrix(t, rocePorts, opAdd) }
func TestMatrixExclusivePortsDel(t *testing.T)        { runMatrix(t, rocePorts, opDel) }
func TestMatrixExclusivePortsGone(t *testing.T)       { runMatrix(t, rocePorts, opGone) }
func TestMatrixExclusiveRDMAOnlyAdd(t *testing.T)     { runMatrix(t, bareDevice, opAdd) }
func TestMatrixExclusiveRDMAOnlyDel(t *testing.T)     { runMatrix(t, bareDevice, opDel) }
func TestMatrixExclusiveRDMAOnlyGone(t *testing.T)    { runMatrix(t, bareDevice, opGone) }
