//go:build labguest

package guest

import "testing"

func TestMatrixSharedIPoIBAdd(t *testing.T)  { runMatrix(t, sharedDevice, opAdd) }
func TestMatrixSharedIPoIBDel(t *testing.T)  { runMatrix(t, sharedDevice, opDel) }
func TestMatrixSharedIPoIBGone(t *testing.T) { runMatrix(t, sharedDevice, opGone) }
func TestMatrixSharedChildAdd(t *testing.T)  { runMatrix(t, childShared, opAdd) }
func TestMatrixSharedChildDel(t *testing.T)  { runMatrix(t, childShared, opDel) }
func TestMatrixSharedChildGone(t *testing.T) { runMatrix(t, childShared, opGone) }
