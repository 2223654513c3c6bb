//go:build !linux

package kubelet

import (
	"errors"
	"fmt"
)

// read is of nodes, which run Linux.
func read(path string) ([]byte, error) { return nil, fmt.Errorf("%s: %w", path, errors.ErrUnsupported) }
