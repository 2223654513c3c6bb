package cli

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// where names a pod from the host.
type where struct {
	pid   int
	netns string
}

func (w *where) flags(c *cobra.Command) {
	c.Flags().IntVar(
		&w.pid,
		"pid",
		0,
		"a process of the container, as the host counts (crictl inspect); default: this one",
	)
	c.Flags().StringVar(&w.netns, "netns", "", "network namespace of the pod: what concerns its processes is left out")
	c.MarkFlagsMutuallyExclusive("pid", "netns")
}

func (a *app) doctorPod() *cobra.Command {
	var w where
	var format, manifest, nads, name string
	var all bool
	c := &cobra.Command{
		Use:   "pod",
		Short: "Check a pod: interfaces, verbs devices, memory, GIDs, variables; from inside, or from the host",
		Long: `doctor pod looks at the container it runs in, or from the host at that of a process (--pid) or at a network namespace
(--netns). With --pod, or --manifest where there is no kubectl, it says from the pod's manifest which step is missing: annotation,
network, Multus, count.
Exit status 3 if anything fails.`,
		Example: `  kubectl exec train-0 -- fabricctl doctor pod
  fabricctl doctor pod --pid $(crictl inspect --output go-template --template '{{.info.pid}}' ID)
  fabricctl doctor pod --pod ml/train-0
  kubectl get pod train-0 -o json | fabricctl doctor pod --manifest -
  kubectl get net-attach-def -A -o json >nads.json; kubectl get pod train-0 -o json | fabricctl doctor pod --manifest - --nads nads.json`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", format, findingFormats...); err != nil {
				return err
			}
			if manifest != "" || name != "" {
				read := func() (*doctor.Manifest, *doctor.NADs, error) { return a.manifest(manifest, nads) }
				if name != "" {
					read = func() (*doctor.Manifest, *doctor.NADs, error) { return podByName(cmd.Context(), name) }
				}
				m, n, err := read()
				if err != nil {
					return err
				}
				list, err := doctor.CheckManifest(m, n)
				if err != nil {
					return fmt.Errorf("%s%s: %w", manifest, name, err)
				}
				return a.findings(list, format, all)
			}
			p, err := a.pod(w)
			if err != nil {
				return err
			}
			return a.findings(doctor.CheckPod(p), format, all)
		},
	}
	findingFlags(c, &format, &all)
	w.flags(c)
	c.Flags().StringVar(
		&manifest,
		"manifest",
		"",
		"the pod as kubectl get pod NAME -o json prints it; - for standard input",
	)
	c.Flags().StringVar(&name, "pod", "", "NAMESPACE/NAME of the pod to ask kubectl for")
	c.Flags().StringVar(&nads, "nads", "", "the networks as kubectl get net-attach-def -A -o json prints them")
	return c
}

func (a *app) ncclEnv() *cobra.Command {
	var w where
	var format string
	c := &cobra.Command{
		Use:   "nccl-env",
		Short: "Print the environment for NCCL, UCX and Open MPI, with a reason per line",
		Long: `nccl-env works the variables out from what is there: ports in rail order, the GID index where it is needed, and nothing by habit.
Exit status 3 if there is no usable port.`,
		Example: `  eval "$(fabricctl nccl-env)"
  fabricctl nccl-env -o nccl.conf >/etc/nccl.conf`,
		Args: argsBetween(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", format, append(nccl.Formats, "json", "yaml")...); err != nil {
				return err
			}
			p, err := a.pod(w)
			if err != nil {
				return err
			}
			n, without := p.Openable()
			vars, notes := nccl.Env(n)
			if len(without) > 0 {
				notes = append(
					notes,
					"visible, but without a character device in the container: "+strings.Join(without, ", "),
				)
			}
			if format == "json" || format == "yaml" {
				err = a.structured(format, struct {
					Vars  []nccl.Var `json:"vars"`
					Notes []string   `json:"notes,omitempty"`
				}{vars, notes})
			} else {
				fmt.Fprint(a.stdout, nccl.Print(format, vars, notes))
			}
			if err == nil && len(vars) == 0 {
				return errFinding
			}
			return err
		},
	}
	w.flags(c)
	c.Flags().StringVarP(&format, "output", "o", "export", strings.Join(nccl.Formats, ", ")+", json or yaml")
	return c
}

// pod collects the picture of a pod.
func (a *app) pod(w where) (*doctor.Pod, error) {
	switch {
	case a.root != "/":
		tree, err := a.tree()
		if err != nil {
			return nil, err
		}
		n, err := node.Open(tree, a.store())
		if err != nil {
			return nil, err
		}
		return &doctor.Pod{Node: n, Bare: true}, nil
	case w.netns != "":
		return a.podOfNetns(w.netns)
	}
	proc, env := "/proc/self", os.Environ()
	root := "/"
	live, arp := node.ReadLive, arpIgnore()
	if w.pid != 0 {
		proc = "/proc/" + strconv.Itoa(w.pid)
		root = proc + "/root"
		ns, err := netns.Open(proc + "/ns/net")
		if err != nil {
			return nil, fmt.Errorf("--pid %d: %w", w.pid, err)
		}
		defer ns.Close()
		b, err := os.ReadFile(proc + "/environ")
		if err != nil {
			return nil, fmt.Errorf("--pid %d: %w; run as root", w.pid, err)
		}
		env = strings.Split(string(b), "\x00")
		live = func(s journal.Store) (l *node.Live) {
			if err := ns.Do(func() error { l, arp = node.ReadLive(s), arpIgnore(); return nil }); err != nil {
				return &node.Live{Problems: []string{err.Error()}}
			}
			return l
		}
	}
	tree := os.DirFS(root)
	n, err := node.Read(tree, live(journal.Store{Dir: a.stateDir + "/none-in-a-pod"}))
	if err != nil {
		return nil, err
	}
	p := doctor.CollectPod(tree, os.DirFS(proc), n, env)
	p.ARPIgnore = arp
	var st unix.Statfs_t
	if err := unix.Statfs(root+"/dev/shm", &st); err == nil {
		p.Shm = int64(st.Blocks) * st.Bsize
	}
	return p, nil
}

// arpIgnore reads the sysctl of every interface of the calling thread's network namespace: that is what /proc/sys/net
// shows.
func arpIgnore() map[string]int {
	const dir = "/proc/sys/net/ipv4/conf/"
	out := map[string]int{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		b, err := os.ReadFile(dir + e.Name() + "/arp_ignore")
		if n, nerr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && nerr == nil {
			out[e.Name()] = n
		}
	}
	return out
}

// podOfNetns looks at a network namespace without a process in it.
func (a *app) podOfNetns(path string) (*doctor.Pod, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--netns: %w", err)
	}
	defer ns.Close()
	var n *node.Node
	var arp map[string]int
	err = ns.DoWithSys(func(sys fs.FS) error {
		arp = arpIgnore()
		n, err = node.Read(onlySys{sys}, node.ReadLive(journal.Store{Dir: a.stateDir + "/none-in-a-pod"}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--netns %s: %w", path, err)
	}
	return &doctor.Pod{Node: n, Bare: true, ARPIgnore: arp}, nil
}

// onlySys is a root file system that has nothing but sys.
type onlySys struct{ sys fs.FS }

func under(name string) (string, error) {
	if name == "sys" {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(name, "sys/"); ok {
		return rest, nil
	}
	return "", fs.ErrNotExist
}

// Open opens a file of sysfs.
func (o onlySys) Open(name string) (fs.File, error) {
	rest, err := under(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return o.sys.Open(rest)
}

// ReadLink reads a link of sysfs.
func (o onlySys) ReadLink(name string) (string, error) {
	rest, err := under(name)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return fs.ReadLink(o.sys, rest)
}

// Lstat describes a file of sysfs.
func (o onlySys) Lstat(name string) (fs.FileInfo, error) {
	rest, err := under(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return fs.Lstat(o.sys, rest)
}
