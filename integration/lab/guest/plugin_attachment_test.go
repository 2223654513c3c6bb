//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// config is a network configuration, or a part of one.
type config map[string]any

// network returns a configuration of the plugin: the usual fields and these. A nil value takes a field away.
func network(fields config) config {
	c := config{"cniVersion": "1.1.0", "name": "rails", "type": "fabric"}
	maps.Copy(c, fields)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// static is the IPAM plugin of that name with addresses: "10.0.0.1/24", or "10.0.0.1/24 via 10.0.0.254".
func static(addresses ...string) config {
	list := []config{}
	for _, a := range addresses {
		prefix, gateway, ok := strings.Cut(a, " via ")
		c := config{"address": prefix}
		if ok {
			c["gateway"] = gateway
		}
		list = append(list, c)
	}
	return config{"type": "static", "addresses": list}
}

// hostLocal is the IPAM plugin of that name, whose files show the addresses that are held.
func hostLocal(subnet string) config {
	return config{"type": "host-local", "ranges": [][]config{{{"subnet": subnet}}}}
}

// heldAddresses returns the addresses that host-local holds.
func heldAddresses(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/var/lib/cni/networks/*/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, stays)
}

// attachment is one interface of a pod as a runtime keeps it: what it called ADD with, and the result.
type attachment struct {
	pod    *Pod
	id     string
	ifname string
	conf   config
	path   string          // CNI_PATH; "": BinDir
	args   string          // CNI_ARGS
	prev   json.RawMessage // result of ADD
}

// interfaceOf returns the attachment of pod with interface name ifname; the container has the pod's name.
func interfaceOf(pod *Pod, ifname string, conf config) *attachment {
	return &attachment{pod: pod, id: pod.Name, ifname: ifname, conf: conf}
}

// call returns the call of a command, with the prevResult where the version has one.
func (a *attachment) call(command string) Call {
	conf := maps.Clone(a.conf)
	if version, _ := conf["cniVersion"].(string); a.prev != nil && (command == "CHECK" || command == "DEL") &&
		version >= "0.4.0" {
		conf["prevResult"] = a.prev
	}
	c := Call{Command: command, ContainerID: a.id, Netns: a.pod.Path, IfName: a.ifname, Args: a.args, Config: conf}
	if a.path != "" {
		c.Env = []string{"CNI_PATH=" + a.path}
	}
	return c
}

// add must succeed.
func (a *attachment) add(t testing.TB) Outcome {
	t.Helper()
	out := a.call("ADD").Must(t)
	a.prev = json.RawMessage(out.Stdout)
	return out
}

// del must succeed.
func (a *attachment) del(t testing.TB) {
	t.Helper()
	a.call("DEL").Must(t)
}

// wantError fails the test unless the plugin failed with this code, and its message has all the words.
func wantError(t testing.TB, out Outcome, code uint, words ...string) {
	t.Helper()
	if out.Err == nil || out.Err.Code != code {
		t.Errorf("got %s, want CNI error %d\n%s", out, code, out.Stderr)
		return
	}
	message := out.Err.Msg + "; " + out.Err.Details
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("message %q lacks %q", message, w)
		}
	}
	if strings.Contains(message+out.Stderr, "panic") || strings.Contains(message, "\n") {
		t.Errorf("not a message for users: %q, stderr %q", message, out.Stderr)
	}
}

// link returns a link of the pod.
func (p *Pod) link(t testing.TB, ifname string) netlink.Link {
	t.Helper()
	l, err := p.Handle(t).LinkByName(ifname)
	if err != nil {
		t.Fatalf("%s in pod %s: %v", ifname, p.Name, err)
	}
	return l
}

// addresses returns the pod's addresses on a link, link-local ones left out.
func (p *Pod) addresses(t testing.TB, ifname string) []string {
	t.Helper()
	h := p.Handle(t)
	l := p.link(t, ifname)
	list, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range list {
		if !a.IP.IsLinkLocalUnicast() {
			out = append(out, a.IPNet.String())
		}
	}
	slices.Sort(out)
	return out
}

// has fails the test unless the pod has the link with exactly these addresses, and up.
func (p *Pod) has(t testing.TB, ifname string, addresses ...string) {
	t.Helper()
	l := p.link(t, ifname)
	if l.Attrs().RawFlags&1 == 0 {
		t.Errorf("%s in pod %s is down", ifname, p.Name)
	}
	slices.Sort(addresses)
	if got := p.addresses(t, ifname); !slices.Equal(got, addresses) {
		t.Errorf("%s in pod %s has addresses %v, want %v", ifname, p.Name, got, addresses)
	}
}

// hasHCA fails the test unless the pod's RDMA devices are exactly these.
func (p *Pod) hasHCA(t testing.TB, names ...string) {
	t.Helper()
	var got []string
	links, err := dump(p.Handle(t).RdmaLinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		got = append(got, l.Attrs.Name)
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("pod %s has RDMA devices %v, want %v", p.Name, got, names)
	}
}

// sh runs a shell command in the pod.
func (p *Pod) sh(t testing.TB, command string) string {
	t.Helper()
	out, err := p.Command("sh", "-ec", command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plugins returns a CNI_PATH that begins with a directory of shell scripts by name: plugins that do what a test needs.
func plugins(t testing.TB, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + BinDir()
}

// entryFile is the journal's file of an attachment.
func (a *attachment) entryFile() string {
	return fmt.Sprintf("/run/fabric-cni/attachments/%s@%s", a.id, a.ifname)
}
