package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// machine is the node to look at: the running one, or a recording.
type machine struct {
	root     string // "/", another root directory, or a recording (tar.gz)
	stateDir string // where the plugin keeps its journal
	goos     string // of the system that fabricctl runs on; empty: runtime.GOOS
	kube     *cluster.Cluster
	plugin   bool   // called as kubectl fabric
	hostProc string // where a container has the /proc of its node; empty: node.HostProc
}

// linux tells whether there is a sysfs and netlink to ask.
func (m *machine) linux() bool { return cmp.Or(m.goos, runtime.GOOS) == "linux" }

// errNotLinux refuses what reads or changes the running machine on a system that has neither sysfs nor netlink. The
// name of the command is put before it.
var errNotLinux = errors.New("needs a Linux node: run it there")

// running refuses a recording, for commands that need the running machine, and another system than Linux.
func (m *machine) running(what string) error {
	if !m.linux() {
		return errNotLinux
	}
	if m.root != "/" {
		return fmt.Errorf("%w: %s is about the running machine, and --root is %s", errUsage, what, m.root)
	}
	return nil
}

// tree is the file system of the machine.
func (m *machine) tree() (fs.FS, error) {
	if m.root == "/" && !m.linux() {
		return nil, fmt.Errorf("%w, or give --root RECORDING (fabricctl discover --record makes one)", errNotLinux)
	}
	return openTree(m.root)
}

// nodeTree is tree, with the files of the node where the running machine is a container on it, such as the agent's. A
// problem is why they can't be read; then it has the container's. proc is the node's /proc; empty outside of a
// container.
func (m *machine) nodeTree() (tree fs.FS, proc string, problem, err error) {
	if m.root != "/" || !m.linux() {
		tree, err = m.tree()
		return tree, "", nil, err
	}
	proc = cmp.Or(m.hostProc, node.HostProc)
	tree, container, problem := node.Running(proc)
	if !container {
		proc = ""
	}
	return tree, proc, problem, nil
}

func openTree(root string) (fs.FS, error) { return treeOf("root", root) }

// treeOf opens a tree that a flag names.
func treeOf(flag, root string) (fs.FS, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	switch {
	case filepath.Clean(root) == "/":
		return os.DirFS("/"), nil // the running machine
	case st.IsDir():
		tree, err := node.OpenDir(root)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		return tree, nil
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("--%s %s: is no file or directory", flag, root)
	}
	f, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	defer f.Close()
	tree, err := node.Unpack(f)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, root, err)
	}
	return tree, nil
}

func (m *machine) store() node.Store { return node.Store{Dir: m.stateDir} }

// node reads the machine.
func (m *machine) node() (*node.Node, error) {
	tree, err := m.tree()
	if err != nil {
		return nil, err
	}
	return node.Open(tree, m.store())
}
