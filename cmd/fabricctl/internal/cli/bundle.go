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
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// commands are run for the bundle, if they are there.
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

// clusterCommands are run with --cluster.
var clusterCommands = [][]string{
	{"kubectl", "get", "net-attach-def", "-A", "-o", "yaml"},
	{"kubectl", "get", "nodes", "-o", "wide"},
	{"kubectl", "get", "ippools.whereabouts.cni.cncf.io", "-A", "-o", "yaml"},
	{"kubectl", "-n", "kube-system", "get", "daemonsets", "-o", "wide"},
	{"kubectl", "get", "events", "-A", "--field-selector", "type=Warning"},
}

func (a *app) bundle() *cobra.Command {
	var file string
	var cluster bool
	c := &cobra.Command{
		Use:   "support-bundle",
		Short: "Pack everything a maintainer would ask for into one file, without secrets",
		Long: `support-bundle writes a tar.gz with a recording of the node, what discover, doctor host and list say, the plugin's journal,
node policy and checksum, the kernel's log and the state of interfaces, routes and RDMA devices. Passwords, tokens and keys
are removed from every file. It has names, addresses and GUIDs of the node: look through it before you send it.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := &pack{files: map[string][]byte{}}
			a.collect(cmd.Context(), b, cmd.Root().Version, cluster)
			out, err := b.bytes()
			if err != nil {
				return err
			}
			if err := a.write(file, out); err != nil {
				return err
			}
			fmt.Fprintf(
				a.stderr,
				"wrote %s: %d files, %d bytes; it has names, addresses and GUIDs of this node\n",
				file,
				len(b.names),
				len(out),
			)
			return nil
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "fabric-support.tar.gz", "where to write it; - for standard output")
	c.Flags().BoolVar(
		&cluster,
		"cluster",
		false,
		"also networks, nodes, address pools and events of the cluster, through kubectl",
	)
	return c
}

// pack is the files of a bundle, in the order they came.
type pack struct {
	names []string
	files map[string][]byte
}

// add puts a file in, without secrets. An error takes the place of what could not be had.
func (p *pack) add(name string, b []byte, err error) {
	if err != nil {
		b = append(append(b, '\n'), []byte("error: "+err.Error()+"\n")...)
	}
	if _, ok := p.files[name]; !ok {
		p.names = append(p.names, name)
	}
	p.files[name] = redact(b)
}

func (p *pack) addJSON(name string, v any, err error) {
	b, jerr := json.MarshalIndent(v, "", "  ")
	p.add(name, b, errors.Join(err, jerr))
}

func (p *pack) bytes() ([]byte, error) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, name := range p.names {
		content := p.files[name]
		h := &tar.Header{
			Name:     path.Join("fabric-support", name),
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

// collect goes on past whatever fails: a bundle is made when something is broken.
func (a *app) collect(ctx context.Context, p *pack, version string, cluster bool) {
	p.add("version.txt", []byte("fabricctl "+version+"\n"), nil)
	a.collectNode(p)
	list, err := a.attachments()
	p.addJSON("attachments.json", list, err)
	var entries []json.RawMessage
	for _, l := range list {
		b, err := l.entry.Encode()
		if err == nil {
			entries = append(entries, b)
		}
	}
	p.addJSON("journal.json", entries, nil)
	b, err := os.ReadFile(policy.DefaultPath)
	p.add("policy.json", b, err)
	for _, bin := range []string{"/opt/cni/bin/fabric"} {
		b, err := os.ReadFile(bin)
		if err == nil {
			b = fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b), bin)
		}
		p.add("plugin.sha256", b, err)
	}
	all := commands
	if cluster {
		all = append(append([][]string{}, commands...), clusterCommands...)
	}
	for _, c := range all {
		out, err := output(ctx, c)
		p.add("commands/"+strings.NewReplacer("/", "_", " ", "_").Replace(strings.Join(c, " "))+".txt", out, err)
	}
}

func (a *app) collectNode(p *pack) {
	tree, err := a.tree()
	if err != nil {
		p.add("node.txt", nil, err)
		return
	}
	r, n, err := node.Record(tree, a.store())
	if err != nil {
		p.add("node.txt", nil, err)
		return
	}
	h, err := a.host()
	if err == nil {
		p.addJSON("doctor-host.json", doctor.CheckHost(h), nil)
	}
	doctor.CollectHost(r, n)
	p.addJSON("discover.json", discovery{n, n.Fabrics()}, err)
	var rec bytes.Buffer
	_, err = r.WriteTo(&rec)
	if err != nil {
		p.add("node.txt", nil, err)
		return
	}
	p.names = append(p.names, "node.tar.gz") // is compressed: has files of sysfs and no configuration
	p.files["node.tar.gz"] = rec.Bytes()
}

// output runs one command, for a few seconds.
func output(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
}
