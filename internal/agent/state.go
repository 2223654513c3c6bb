package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// stateName is the file in the state directory that holds savedState.
const stateName = "agent.json"

// savedState is what the next agent on this node must know of this one. The file is in the state directory, which is a
// tmpfs: a reboot ends all pods, and removes it too.
type savedState struct {
	// Fabrics are those in force, and Ranges this node's own.
	Fabrics []savedFabric            `json:"fabrics,omitempty"`
	Ranges  []v1alpha1.AssignedRange `json:"ranges,omitempty"`
	// Selected are the Fabrics whose nodeSelector selects this node.
	Selected []string `json:"selected,omitempty"`
	// Health is what was wrong with devices, by their id, and their last flaps.
	Health map[string]health.Saved `json:"health,omitempty"`
	// Devices maps a device id to the fabric that the device was in when its port was last up.
	Devices map[string]string `json:"devices,omitempty"`
	// Heard means that the FabricNode of before the boot has been read.
	Heard bool `json:"heard,omitempty"`

	file string
}

// loadState reads the state of an earlier agent. If the file cannot be read, it returns an empty state with the error:
// the API server, the ports and time tell all of it again.
func loadState(dir string) (*savedState, error) {
	file := filepath.Join(dir, stateName)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &savedState{file: file}, nil
	}
	s := &savedState{}
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		s, err = &savedState{}, fmt.Errorf("read the state of the previous agent %s: %w", file, err)
	}
	s.file = file
	return s, err
}

// save writes the file atomically, if its content has changed.
func (s *savedState) save() error {
	b, err := json.Marshal(s)
	if err == nil {
		if old, rerr := os.ReadFile(s.file); rerr == nil && bytes.Equal(old, b) {
			return nil
		}
		err = atomicfile.File{Path: s.file, Mode: 0o600}.Write(b)
	}
	if err != nil {
		return fmt.Errorf("save the state for the next agent: %w", err)
	}
	return nil
}

// wasActive reports whether the port of a device is known to have been Active, before the boot too.
func (s *savedState) wasActive(id string) bool { return s.Devices[id] != "" }

// hear takes from the node's own FabricNode which ports were Active before the boot, once after each boot: a port whose
// cable has broken meanwhile is Down, and not one that was never connected. A nil node is one that has none yet.
func (s *savedState) hear(own *v1alpha1.FabricNode) {
	if s.Heard {
		return
	}
	s.Heard = true
	if own == nil {
		return
	}
	if s.Devices == nil {
		s.Devices = map[string]string{}
	}
	for i := range own.Status.Fabrics {
		f := &own.Status.Fabrics[i]
		for j := range f.Devices {
			if d := &f.Devices[j]; d.Problem != string(health.NotConnected) && s.Devices[d.ID] == "" {
				s.Devices[d.ID] = f.Name
			}
		}
	}
}

// setDevices records the fabric of each device whose port is up, and saves the state.
func (s *savedState) setDevices(assigned map[string][]survey.Device) error {
	if s.Devices == nil {
		s.Devices = map[string]string{}
	}
	for fabric, devices := range assigned {
		for i := range devices {
			if devices[i].Active() {
				s.Devices[devices[i].ID()] = fabric
			}
		}
	}
	if len(s.Devices) == 0 && len(s.Health) == 0 {
		return nil
	}
	return s.save()
}
