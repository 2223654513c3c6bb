//go:build !linux

package node

import "errors"

// Store is the plugin's journal, which is on Linux only.
type Store struct{ Dir string }

// StoreDir is where the plugin's journal is: nowhere.
const StoreDir = ""

const (
	kindIPoIB = "ipoib"
	nonblock  = 0
)

// Users asks the kernel, which is on Linux only.
func Users() (map[string][]string, error) { return nil, errors.New("this system is not Linux") }

// ReadLive asks the kernel, which is on Linux only. Recordings have what it says.
func ReadLive(Store) *Live { return &Live{Problems: []string{"this system is not Linux"}} }
