//go:build failpoint

package fabric_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// Rounds in which walks have found something, each ended by its DELs.
func TestWalkAgain(t *testing.T) {
	for name, text := range map[string]string{
		"an interface without a carrier can't be raised at first": "add 0 2\ndel 0 2 error 628\n",
		"a pod changes the MAC before its ifindex is noted":       "add 1 3 kill 601\nmischief 1 3 mac\n",
		"the first address can't be added, then none removed":     "add 1 0\ndel 1 0 error 520\ndel 1 0 error 12\n",
	} {
		t.Run(name, func(t *testing.T) {
			ops, err := walk.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			w := walk.Walk{Pods: 2, Devices: len(walkDevices), Dies: true}
			if _, err := w.Replay(newWalkWorld(t), ops); err != nil {
				t.Error(err)
			}
		})
	}
}
