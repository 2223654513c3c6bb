package doctor

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// sensible is a quantity that is no work to read: 1e999999999 is.
var sensible = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?([eE][0-9]{1,2}|[mkKMGTPE]i?)?$`)

// quantity is a quantity of Kubernetes in bytes; -1: missing or invalid.
func quantity(v any) int64 {
	if v == nil {
		return -1
	}
	text := fmt.Sprint(v)
	if f, ok := v.(float64); ok { // of JSON; Sprint would write 1e+09
		text = fmt.Sprintf("%.0f", f)
	}
	if !sensible.MatchString(text) {
		return -1
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return -1
	}
	return q.Value()
}

// leastShm is what NCCL and the loaders of a node with eight GPUs need in /dev/shm at the least, in bytes.
const leastShm = 1 << 30

// shmVolume is what a container has at /dev/shm. size is in bytes, -1: as much as the pod's memory limits, or the
// node's memory.
func (m *Manifest) shmVolume(c *container) (v *volume, size int64) {
	for _, mount := range c.Mounts {
		if path.Clean(mount.Path) != "/dev/shm" {
			continue
		}
		i := slices.IndexFunc(m.Spec.Volumes, func(v volume) bool { return v.Name == mount.Name })
		if i < 0 {
			return nil, 0
		}
		v = &m.Spec.Volumes[i]
		if v.EmptyDir == nil {
			return v, -1
		}
		return v, quantity(v.EmptyDir.Size)
	}
	return nil, 0
}

// shm checks /dev/shm of the containers that compute on GPUs.
func (m *Manifest) shm() (out []Finding) {
	if m.gpus() == 0 || m.Spec.HostIPC {
		return nil
	}
	for _, c := range m.working() {
		v, size := m.shmVolume(c)
		at := "container " + c.Name + ": "
		switch {
		case v == nil:
			out = append(out, finding("pod-shm", Warn, at+"no volume at /dev/shm: it has 64 MiB"))
		case v.EmptyDir != nil && v.EmptyDir.Medium != "Memory":
			out = append(out, finding("pod-shm", Warn, at+"the emptyDir at /dev/shm is on a disk: no medium: Memory"))
		case v.EmptyDir != nil && size >= 0 && size < leastShm:
			out = append(out, finding("pod-shm", Warn, fmt.Sprintf("%s/dev/shm has %d MiB (sizeLimit)", at, size>>20)))
		}
	}
	return pass(out, "pod-shm", "a volume in memory at /dev/shm")
}

// memory compares the limit with what counts towards it: pinned pages and /dev/shm, with cgroup v1 as with v2.
func (m *Manifest) memory() (out []Finding) {
	for _, c := range m.working() {
		limit := quantity(c.Resources.Limits["memory"])
		at := "container " + c.Name + ": "
		if limit < 0 {
			out = append(out, finding("pod-memory", OK, at+"no memory limit"))
			continue
		}
		v, size := m.shmVolume(c)
		inMemory := v != nil && v.EmptyDir != nil && v.EmptyDir.Medium == "Memory" && size > 0
		text := fmt.Sprintf("%sthe memory limit is %d MiB", at, limit>>20)
		switch {
		case limit < leastMemory:
			out = append(out, finding("pod-memory", Warn, text))
		case inMemory && size >= limit:
			out = append(out, finding("pod-memory", Warn, fmt.Sprintf("%s, and /dev/shm alone may take %d of them",
				text, size>>20)))
		case inMemory && limit-size < leastMemory:
			out = append(out, finding("pod-memory", Warn, fmt.Sprintf("%s: with a full /dev/shm (%d MiB) %d MiB are "+
				"left for the program and what it pins", text, size>>20, (limit-size)>>20)))
		default:
			out = append(out, finding("pod-memory", OK, text))
		}
	}
	return out
}

// users finds users other than root for whom the capability is nothing.
func (m *Manifest) users() (out []Finding) {
	for _, c := range m.working() {
		user := c.SecurityContext.User
		if user == nil {
			user = m.Spec.Security.User
		}
		if user != nil && *user != 0 && slices.Contains(c.SecurityContext.Capabilities.Add, "IPC_LOCK") {
			out = append(out, finding("pod-memlock", Warn, fmt.Sprintf("container %s runs as user %d: the capability "+
				"IPC_LOCK is for root only (Kubernetes gives no ambient capabilities), the limit of locked memory "+
				"holds", c.Name, *user)))
		}
	}
	return out
}
