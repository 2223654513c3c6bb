package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/redact"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// commands are run for the bundle. One that is not installed leaves an error in its file.
var commands = [][]string{
	{"uname", "-a"},
	{"ip", "-details", "-statistics", "link", "show"},
	{"ip", "address", "show"},
	{"ip", "route", "show", "table", "all"},
	{"ip", "-6", "route", "show", "table", "all"},
	{"ip", "rule", "show"},
	{"ip", "netns", "list-id"},
	{"rdma", "system"},
	{"rdma", "-d", "dev"},
	{"rdma", "-d", "link"},
	{"lspci", "-nn", "-t"},
	{"dmesg", "--ctime"},
	{"systemctl", "show", "containerd", "-p", "LimitMEMLOCK", "-p", "ActiveState"},
}

// clusterLists are read with --cluster: objects, or where a table is enough what kubectl prints. The files are named
// after the command that shows the same.
var clusterLists = []struct {
	command string
	table   bool
	lists   []cluster.List
}{
	{"kubectl get fabrics.fabric.dev -o json", false, []cluster.List{{Of: cluster.Fabrics}}},
	{"kubectl get fabricnodes.fabric.dev -o wide", true, []cluster.List{{Of: cluster.FabricNodes}}},
	{"kubectl get net-attach-def -A -o json", false, []cluster.List{{Of: cluster.Networks}}},
	{"kubectl get " + draKinds + " -A -o json", false, []cluster.List{
		{Of: cluster.Claims}, {Of: cluster.Templates}, {Of: cluster.Slices}, {Of: cluster.Classes},
	}},
	{"kubectl get nodes -o wide", true, []cluster.List{{Of: cluster.Nodes}}},
	{"kubectl get ippools.whereabouts.cni.cncf.io -A -o json", false, []cluster.List{{Of: cluster.Pools}}},
	{"kubectl -n kube-system get daemonsets -o wide", true, []cluster.List{
		{Of: cluster.DaemonSets, Namespace: metav1.NamespaceSystem},
	}},
	{"kubectl get events -A --field-selector type=Warning", true, []cluster.List{
		{Of: cluster.Events, Fields: "type=Warning"},
	}},
}

func supportBundleCommand(a *app) *cobra.Command {
	var file string
	b := &bundle{app: a, pack: pack{files: map[string][]byte{}}}
	c := &cobra.Command{
		Use:   "support-bundle",
		Short: "Pack what a maintainer would ask for into one file, without the secrets that it knows",
		Long: `support-bundle writes a tar.gz with a recording of the node, the output of discover, doctor host and
list, the plugin's journal, node policy and checksum, and the state of interfaces, routes and RDMA devices. Of files of
other programs (containerd, kubelet, systemd units, CNI configurations, modprobe.d), the kernel's command line and log,
and objects of the cluster it keeps only known settings and lines, and replaces the rest by "(removed)". It
removes values that are named like a secret (password, token, key, cookie) or look like one (private keys, web tokens,
URLs with a user, cloud keys). A secret in a text of another form stays, and so do names, addresses and GUIDs:
review the file before you send it.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.settle(&a.machine, false)
			b.collect(cmd.Context())
			out, err := b.bytes()
			if err != nil {
				return err
			}
			if err := a.write(file, out); err != nil {
				return err
			}
			a.stderr.Printf("wrote %s: %d files, %d bytes; it has names, addresses and GUIDs of this node\n",
				file, len(b.names), len(out))
			return nil
		},
	}
	c.Flags().StringVar(&file, "output-file", "fabric-support.tar.gz", "where to write it; - for standard output")
	b.flags(c, "also Fabrics, networks, ResourceClaims and slices, nodes, address pools and events of the cluster",
		"this machine only")
	return c
}

// bundle collects the files. It goes on past whatever fails: a bundle is made when something is broken.
type bundle struct {
	*app
	pack
	place
}

func (b *bundle) collect(ctx context.Context) {
	b.add("version.txt", []byte("fabricctl "+b.version+"\n"), nil)
	b.collectNode()
	list, err := b.attachments()
	b.addObject("attachments.json", attachmentList{list}, err)
	var entries []json.RawMessage
	for _, l := range list {
		e, err := l.entry.Encode()
		if err == nil {
			entries = append(entries, e)
		}
	}
	journal, err := json.MarshalIndent(entries, "", "  ")
	b.add("journal.json", journal, err)
	b.files["journal.json"] = redact.Journal(b.files["journal.json"])
	text, err := os.ReadFile(policy.DefaultPath)
	b.add("policy.json", text, err)
	text, err = os.ReadFile(installed)
	if err == nil {
		text = fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(text), installed)
	}
	b.add("plugin.sha256", text, err)
	for _, c := range commands {
		b.addOutput(ctx, c)
	}
	if b.cluster {
		for _, c := range clusterLists {
			read := b.objects
			if c.table {
				read = b.table
			}
			ctx, cancel := context.WithTimeout(ctx, patient)
			text, err := read(ctx, c.lists)
			cancel()
			b.add(commandFile(c.command), text, err)
		}
	}
}

func (b *bundle) collectNode() {
	tree, _, _, err := b.nodeTree() // of a problem doctor host tells
	if err != nil {
		b.add("node.txt", nil, err)
		return
	}
	b.collectConfigs(tree)
	r, n, err := node.Record(tree, b.store())
	if err != nil {
		b.add("node.txt", nil, err)
		return
	}
	h, err := b.host()
	if err == nil {
		b.addObject("doctor-host.json", findingList{doctor.CheckHost(h)}, nil)
	}
	if err := b.recordHost(r, n); err != nil {
		b.add("node.txt", nil, err)
		return
	}
	b.addObject("discover.json", discovery{n, n.Fabrics()}, err)
	r.Rewrite(redact.File) // doctor host reads files of other programs, such as the proxy of containerd
	var rec bytes.Buffer
	if _, err = r.WriteTo(&rec); err != nil {
		b.add("node.txt", nil, err)
		return
	}
	b.names = append(b.names, "node.tar.gz")
	b.files["node.tar.gz"] = rec.Bytes()
}

// maxConfig bounds a configuration file of another program, in bytes.
const maxConfig = 1 << 20

// collectConfigs adds what is needed of the configuration of other programs.
func (b *bundle) collectConfigs(tree fs.FS) {
	for _, name := range redact.Configs {
		files := []string{name}
		if entries, err := fs.ReadDir(tree, name); err == nil {
			files = nil
			for _, e := range entries {
				if !e.IsDir() {
					files = append(files, path.Join(name, e.Name()))
				}
			}
		}
		for _, f := range files {
			if st, err := fs.Stat(tree, f); err != nil || !st.Mode().IsRegular() || st.Size() > maxConfig {
				continue
			}
			text, err := fs.ReadFile(tree, f)
			b.add("config/"+f, redact.File(f, text), err)
		}
	}
}

// pack holds the files of a bundle, in the order in which they were added.
type pack struct {
	names []string
	files map[string][]byte
}

// add adds a file without its secrets. An error is written to the end of the file.
func (p *pack) add(name string, b []byte, err error) {
	b = redact.Text(b)
	if err != nil {
		b = append(b, redact.Text([]byte("\nerror: "+err.Error()+"\n"))...)
	}
	if _, ok := p.files[name]; !ok {
		p.names = append(p.names, name)
	}
	p.files[name] = b
}

// addObject adds what a command prints with -o json.
func (p *pack) addObject(name string, v any, err error) {
	var b bytes.Buffer
	out := console{stdout: quote.Printer{W: &b}}
	err = errors.Join(err, out.structured("json", v))
	p.add(name, b.Bytes(), err)
}

func (p *pack) bytes() ([]byte, error) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, name := range p.names {
		content := p.files[name]
		h := &tar.Header{
			Name:     path.Join("fabric-support", quote.Terminal(name)),
			Mode:     0o644,
			Size:     int64(len(content)),
			Typeflag: tar.TypeReg,
			ModTime:  time.Now(),
		}
		if err := out.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write bundle: %w", err)
		}
		if _, err := out.Write(content); err != nil {
			return nil, fmt.Errorf("write bundle: %w", err)
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("write bundle: %w", err)
	}
	return b.Bytes(), nil
}

// addOutput adds what a command prints within a few seconds.
func (p *pack) addOutput(ctx context.Context, args []string) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if said := strings.TrimSpace(stderr.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	text := out.Bytes()
	if args[0] == "dmesg" {
		text = redact.Log(text)
	}
	p.add(commandFile(strings.Join(args, " ")), text, err)
}

// patient is how long a command, or a list of the cluster, may take.
const patient = 20 * time.Second

// commandFile is the file with what a command prints.
func commandFile(command string) string {
	return "commands/" + strings.NewReplacer("/", "_", " ", "_").Replace(command) + ".txt"
}

// objects are the objects of lists, without what is not known to matter.
func (b *bundle) objects(ctx context.Context, lists []cluster.List) ([]byte, error) {
	var all []json.RawMessage
	for _, l := range lists {
		err := cluster.Each(ctx, b.kube, l, func(o *map[string]any, bad error) {
			if bad != nil || *o == nil {
				return
			}
			if (*o)["kind"] == nil {
				(*o)["kind"] = listedKind[l.Of]
			}
			if raw, err := json.Marshal(*o); err == nil {
				all = append(all, raw)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	text, err := manifest.List(all)
	return redact.Objects(text), err
}

// table is a list as kubectl prints it.
func (b *bundle) table(ctx context.Context, lists []cluster.List) ([]byte, error) {
	var out bytes.Buffer
	for _, l := range lists {
		t, err := b.kube.Table(ctx, l)
		if err != nil {
			return nil, err
		}
		printer := printers.NewTablePrinter(printers.PrintOptions{Wide: true, WithNamespace: l.Of == cluster.Events})
		if err := printer.PrintObj(t, &out); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
