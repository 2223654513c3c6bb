package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Share is what stands between the id of a device and the number of a share, in the ids of a Fabric's shares.
const Share = "-share-"

// Holding is what kubelet has given to a container of a pod.
type Holding struct {
	PodUID, Resource string
	IDs              []string
}

// Who returns to which pods kubelet has given a device with one of these ids, or shares of it, and what it has given to
// the pod with this UID of any resource. Kubelet forgets what a pod had that is gone only when it gives out something
// else. Without the file, as without kubelet, there are none.
func Who(dir, podUID string, ids []string) ([]Holding, error) {
	path := filepath.Join(dir, Checkpoint)
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what kubelet has given to pods: %w", err)
	}
	out, err := who(b, podUID, ids)
	if err != nil {
		return nil, fmt.Errorf("read what kubelet has given to pods: %s: %w", path, err)
	}
	return out, nil
}

// who is Who with the content of the file. As in walk, most of it is not parsed.
func who(b []byte, podUID string, ids []string) (out []Holding, err error) {
	visit := func(e *entry) {
		h := Holding{PodUID: e.PodUID, Resource: e.ResourceName}
		for _, of := range e.DeviceIDs {
			h.IDs = append(h.IDs, of[:min(len(of), maxIDs-len(h.IDs))]...)
		}
		out = append(out, h)
	}
	if err := walk(b, podUID, visit); err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, id := range ids {
		quoted, err := json.Marshal(id)
		if err != nil {
			return nil, err
		}
		for from := 0; ; {
			i := bytes.Index(b[from:], quoted[:len(quoted)-1])
			if i < 0 {
				break
			}
			at := from + i
			from = at + 1
			begin := bytes.LastIndex(b[:at], []byte(`{"PodUID":`))
			if begin < 0 || seen[begin] {
				continue
			}
			seen[begin] = true
			var e entry
			if err := json.NewDecoder(bytes.NewReader(b[begin:])).Decode(&e); err != nil {
				return nil, err
			}
			if e.PodUID != podUID && e.has(ids) {
				visit(&e)
			}
		}
	}
	return out, nil
}

// has reports whether one of these devices is the container's, or a share of one.
func (e *entry) has(ids []string) bool {
	for _, of := range e.DeviceIDs {
		if slices.ContainsFunc(of, func(id string) bool { return slices.Contains(ids, Whole(id)) }) {
			return true
		}
	}
	return false
}

// Whole is the id of the device that an id is a share of, or the id itself.
func Whole(id string) string {
	whole, _, _ := strings.Cut(id, Share)
	return whole
}
