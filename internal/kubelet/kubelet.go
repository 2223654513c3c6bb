// Package kubelet reads which devices kubelet has given to pods, from the file in which kubelet itself remembers it.
// The plugin reads it at ADD, to learn which devices the pod has beside the one that Multus names, and which others
// have.
package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
)

// DefaultDir is kubelet's directory for device plugins, unless its --root-dir is another one.
const DefaultDir = "/var/lib/kubelet/device-plugins"

// Checkpoint is the file in it (pkg/kubelet/cm/devicemanager, kubeletDeviceManagerCheckpoint). kubelet writes it whole,
// by a rename, before the sandbox of a pod is made.
const Checkpoint = "kubelet_internal_checkpoint"

// maxFile bounds what is read of it: a node with 500 pods has about a MiB. maxIDs bounds what is kept.
const (
	maxFile = 64 << 20
	maxIDs  = 1024
)

// Allocation is what kubelet has given to the containers of one pod of one resource.
type Allocation struct {
	Resource string
	IDs      []string // each once, in no order
}

// entry is what kubelet has given to one container of one resource.
type entry struct {
	PodUID       string
	ResourceName string
	DeviceIDs    map[string][]string // by NUMA node
}

// Of returns what kubelet has given to a pod of the resource that one of its devices is of: of all containers together,
// as Multus counts them. It returns nil if kubelet has not given that device to the pod. The file is taken only from
// root: it says which devices the pod may have.
func Of(dir, podUID, id string) (*Allocation, error) {
	path := filepath.Join(dir, Checkpoint)
	b, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read what kubelet has given to pods: %w", err)
	}
	g, err := allocation(b, podUID, id)
	if err != nil {
		return nil, fmt.Errorf("read what kubelet has given to pods: %s: %w", path, err)
	}
	return g, nil
}

// allocation is Of with the content of the file.
func allocation(checkpoint []byte, podUID, id string) (*Allocation, error) {
	byResource := map[string][]string{}
	err := walk(checkpoint, podUID, func(e *entry) {
		for _, ids := range e.DeviceIDs {
			have := byResource[e.ResourceName]
			byResource[e.ResourceName] = append(have, ids[:min(len(ids), maxIDs-len(have))]...)
		}
	})
	if err != nil {
		return nil, err
	}
	for resource, ids := range byResource {
		if slices.Contains(ids, id) {
			slices.Sort(ids)
			return &Allocation{Resource: resource, IDs: slices.Compact(ids)}, nil
		}
	}
	return nil, nil
}

// layout is how a checkpoint begins: as encoding/json writes kubelet's types since 1.20.
const layout = `{"Data":{"PodDeviceEntries":`

// walk visits the entries of one pod. Most of the file is what device plugins have answered, and other pods': it is not
// parsed, which would take ten times as long. An entry is found by how it begins. These bytes are nowhere else: inside
// of a string, JSON has a backslash before each quote.
func walk(b []byte, podUID string, visit func(*entry)) error {
	begin, err := json.Marshal(podUID)
	if err != nil {
		return err
	}
	begin = append([]byte(`{"PodUID":`), begin...)
	if !bytes.HasPrefix(b, []byte(layout)) {
		return fmt.Errorf("want it to begin with %s", layout)
	}
	for {
		i := bytes.Index(b, begin)
		if i < 0 {
			return nil
		}
		d := json.NewDecoder(bytes.NewReader(b[i:]))
		var e entry
		if err := d.Decode(&e); err != nil {
			return err
		}
		if e.PodUID == podUID { // else it has a second key of this name
			visit(&e)
		}
		b = b[i+int(d.InputOffset()):]
	}
}
