//go:build !linux

package measure

import "fmt"

// Netns is a network namespace of this machine, which is not Linux.
func Netns(path string) (*End, error) {
	return nil, fmt.Errorf("%s: network namespaces need a Linux node: measure there, or between pods", path)
}
