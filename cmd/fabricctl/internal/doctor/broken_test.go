package doctor

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// A tree with holes, with nonsense in its files, and with files that answer with an error: the picture has less in it,
// and nothing panics.
func TestBrokenTrees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, m := range machines.All() {
		names := slices.Sorted(maps.Keys(m.FS))
		for range 60 {
			tree := maps.Clone(m.FS)
			for range 1 + random.IntN(20) {
				name := names[random.IntN(len(names))]
				if name == node.LiveFile || tree[name] == nil {
					continue
				}
				switch f := tree[name]; random.IntN(3) {
				case 0:
					delete(tree, name)
				case 1:
					tree[name] = &fstest.MapFile{
						Data: []byte{0xff, 0, ':', '-', '9', '9', '9', '9', '9', '9', '9', '9', '9', '9', '9', '9'},
						Mode: f.Mode,
					}
				case 2:
					tree[name] = &fstest.MapFile{Data: nil, Mode: f.Mode}
				}
			}
			try(t, m.Name, tree)
		}
		for _, err := range []error{fs.ErrPermission, errors.New("input/output error"), fs.ErrNotExist} {
			try(t, m.Name, failing{m.FS, err, random})
		}
	}
}

func try(t *testing.T, name string, tree fs.FS) {
	t.Helper()
	n, err := node.Open(tree, journal.Store{})
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // no sys/class left
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	n.Fabrics()
	CheckHost(CollectHost(tree, n))
	CheckPod(CollectPod(tree, tree, n, []string{"NCCL_IB_HCA==mlx5_0:1,", "NCCL_IB_GID_INDEX=3", "UCX_NET_DEVICES=,:"}))
}

// failing is a file system whose files answer with an error now and then, as a device's do that is just leaving.
type failing struct {
	fs.FS
	err    error
	random *rand.Rand
}

func (f failing) ReadFile(name string) ([]byte, error) {
	if name != node.LiveFile && f.random.IntN(4) == 0 {
		return nil, &fs.PathError{Op: "read", Path: name, Err: f.err}
	}
	return fs.ReadFile(f.FS, name)
}

func (f failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.random.IntN(10) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: f.err}
	}
	return fs.ReadDir(f.FS, name)
}

func (f failing) ReadLink(name string) (string, error)   { return fs.ReadLink(f.FS, name) }
func (f failing) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(f.FS, name) }
