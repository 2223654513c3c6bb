package measure

import "github.com/fabric-cni/fabric-cni/internal/netns"

// Netns is a network namespace of this machine.
func Netns(path string) (*End, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	return &End{Name: path, inside: ns}, nil
}
