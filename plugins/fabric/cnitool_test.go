package fabric_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/plugins/test/noop/debug"
	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// tool is cnitool on a node, with the network "chain": the plugin between two of cni's own noop plugin, which log what
// libcni passes to them, and answer as told.
type tool struct {
	*node
	dir     string // of the configuration, and of the noop plugins' files
	version string
}

func newTool(t *testing.T, version, device string) *tool {
	t.Helper()
	n := &tool{node: newNode(t), dir: t.TempDir(), version: version}
	// libcni's cache is /var/lib/cni
	n.lasts, _ = sandbox.Hold(t, "set -- "+n.state+" "+n.etc+"; "+mounts+" && mount -t tmpfs tmpfs /var/lib",
		"ip", "netns", "exec", n.host.Name)
	noop := func(name string) string {
		file := filepath.Join(n.dir, name)
		return fmt.Sprintf(`{"type":"noop","debugFile":%q,"commandLog":%q}`, file, file+".log")
	}
	n.write(t, "chain.conflist", fmt.Sprintf(`{"cniVersion":%q,"name":"chain","plugins":[%s,`+
		`{"type":"fabric","device":%q,%s},%s]}`, version, noop("before"), device, static, noop("behind")))
	n.write(t, "before.log", "[]")
	n.write(t, "behind.log", "[]")
	return n
}

func (n *tool) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// does runs a verb. The noop plugins answer as told; without a word the first one of an ADD has the pod's eth0, and the
// other passes on what it is given.
func (n *tool) does(t *testing.T, verb string, before, behind debug.Debug) (stdout string, err error) {
	t.Helper()
	if verb == "add" && before.ReportError == "" && before.ReportResult == "" {
		before.ReportResult = `{"cniVersion":"` + n.version + `","interfaces":[{"name":"eth0",` +
			`"mac":"02:00:00:00:00:01","sandbox":"` + n.pod.Path + `"}],` +
			`"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24"}],` +
			`"dns":{"nameservers":["10.1.2.1"]}}`
	}
	if verb == "add" && behind.ReportError == "" && behind.ReportResult == "" {
		behind.ReportResult = "PASSTHROUGH"
	}
	for name, d := range map[string]debug.Debug{"before": before, "behind": behind} {
		if err := d.WriteDebug(filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := n.command("cnitool", verb, "chain", n.pod.Path)
	cmd.Env = append(os.Environ(), "CNI_PATH="+os.Getenv(binDir), "NETCONFPATH="+n.dir, "CNI_IFNAME=net1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(b), err
}

// must runs a verb that has to succeed.
func (n *tool) must(t *testing.T, verb string) (stdout string) {
	t.Helper()
	out, err := n.does(t, verb, debug.Debug{}, debug.Debug{})
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return out
}

// fails runs a verb of which a noop plugin, or ours, makes an error.
func (n *tool) fails(t *testing.T, verb string, before, behind debug.Debug, want string) {
	t.Helper()
	out, err := n.does(t, verb, before, behind)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v %s, want an error with %q", verb, err, out, want)
	}
}

// calls of a noop plugin so far, and what it was given at the last one.
func (n *tool) calls(t *testing.T, name string) (verbs []string, conf string) {
	t.Helper()
	log, err := debug.ReadCommandLog(filepath.Join(n.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range log {
		verbs, conf = append(verbs, c.Command), string(c.CmdArgs.StdinData)
	}
	return verbs, conf
}

// chainResult is what of a result the test looks at, in every version of the spec from 0.3.0 on.
type chainResult struct {
	CNIVersion string `json:"cniVersion"`
	Interfaces []struct {
		Name    string `json:"name"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Interface int    `json:"interface"`
		Address   string `json:"address"`
	} `json:"ips"`
	DNS struct {
		Nameservers []string `json:"nameservers"`
	} `json:"dns"`
}

// Every verb of cnitool in every version of the spec, with a plugin before and one behind.
func TestCnitool(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newTool(t, version, "v0")
			out := n.must(t, "add")
			var got chainResult
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err, out)
			}
			n.holds(t, got)
			_, conf := n.calls(t, "behind")
			var passed struct{ PrevResult *chainResult }
			if err := json.Unmarshal([]byte(conf), &passed); err != nil || passed.PrevResult == nil {
				t.Fatal(err, conf)
			}
			n.holds(t, *passed.PrevResult)
			verbs := []string{"ADD"}
			if version < "0.4.0" {
				n.fails(t, "check", debug.Debug{}, debug.Debug{}, "does not support the CHECK command")
			} else {
				n.must(t, "check")
				verbs = append(verbs, "CHECK")
			}
			n.must(t, "status")
			if version >= "1.1.0" {
				verbs = append(verbs, "STATUS")
			}
			n.must(t, "del")
			n.same(t, "after DEL")
			n.must(t, "del")
			n.same(t, "after another DEL")
			n.must(t, "add")
			n.must(t, "gc") // of what cnitool has attached, all of it
			n.same(t, "after GC")
			verbs = append(verbs, "DEL", "DEL", "ADD", "DEL")
			if version >= "1.1.0" {
				verbs = append(verbs, "GC")
			}
			for _, name := range []string{"before", "behind"} {
				if got, _ := n.calls(t, name); !slices.Equal(got, verbs) {
					t.Errorf("the plugin %s ours was called for %v, want %v", name, got, verbs)
				}
			}
		})
	}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newTool(t, version, "v0")
			n.fails(t, "add", debug.Debug{ReportResult: `{"cniVersion":"` + version + `"}`}, debug.Debug{}, version)
			n.same(t, "after a version of the spec that has no chains")
		})
	}
}

// holds asserts that a result has what the plugin before has made, and the device.
func (n *tool) holds(t *testing.T, r chainResult) {
	t.Helper()
	var got []string
	for _, i := range r.Interfaces {
		got = append(got, i.Name+" "+i.Sandbox)
	}
	for _, ip := range r.IPs {
		got = append(got, r.Interfaces[ip.Interface].Name+" "+ip.Address)
	}
	want := []string{
		"eth0 " + n.pod.Path, "net1 " + n.pod.Path,
		"eth0 10.1.2.3/24", "net1 192.168.10.7/24", "net1 2001:db8:10::7/64",
	}
	if diff := cmp.Diff(want, got); diff != "" || r.CNIVersion != n.version {
		t.Errorf("version %s, want %s (-want +got):\n%s", r.CNIVersion, n.version, diff)
	}
	if !slices.Equal(r.DNS.Nameservers, []string{"10.1.2.1"}) {
		t.Errorf("nameservers %v", r.DNS.Nameservers)
	}
}

// An error of the plugin before, of ours, and of the plugin behind, in each verb: what was attached returns with the
// first DEL that gets as far as our plugin. And GC of what libcni does not know.
func TestCnitoolWithErrors(t *testing.T) {
	t.Parallel()
	none, refuses := debug.Debug{}, debug.Debug{ReportError: "refused for the test"}
	const refused = "refused for the test"
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		n := newTool(t, "1.1.0", "v0")
		n.fails(t, "add", refuses, none, refused)
		n.same(t, "after an ADD that did not get as far")
		n.must(t, "del")
		n.must(t, "add")
		n.fails(t, "check", refuses, none, refused)
		n.fails(t, "status", refuses, none, refused)
		n.fails(t, "del", refuses, none, refused) // the last one to be asked
		n.same(t, "after our DEL")
		n.must(t, "del")
		n.must(t, "add")
		n.fails(t, "gc", refuses, none, refused)
		n.same(t, "after GC")
	})
	t.Run("GC of a dead pod", func(t *testing.T) {
		t.Parallel()
		n := newTool(t, "1.1.0", "v0")
		n.node.must(t, n.call("ADD", strings.Replace(conf(), `"rail"`, `"chain"`, 1))) // no entry in libcni's cache
		n.age(t)
		n.must(t, "gc")
		if !n.pod.Has(t, "net1") {
			t.Error("GC without a list has taken the device of a pod that is there")
		}
		sandbox.Run(t, "ip", "netns", "delete", n.pod.Name)
		sandbox.Run(t, "ip", "netns", "add", n.pod.Name) // for the end of the test; another namespace
		n.must(t, "gc")
		if files := n.files(t); len(files) > 0 {
			t.Errorf("left on file: %v", files)
		}
	})
	t.Run("ours", func(t *testing.T) {
		t.Parallel()
		n := newTool(t, "1.1.0", "v9")
		n.fails(t, "add", none, none, "v9")
		n.same(t, "after an ADD of no device")
		if got, _ := n.calls(t, "behind"); len(got) > 0 {
			t.Errorf("the plugin behind was called for %v", got)
		}
		n.must(t, "del")
		n.same(t, "after DEL")
	})
	t.Run("behind", func(t *testing.T) {
		t.Parallel()
		n := newTool(t, "1.1.0", "v0")
		n.fails(t, "add", none, refuses, refused)
		n.fails(t, "del", none, refuses, refused) // the first one to be asked
		if !n.pod.Has(t, "net1") {
			t.Error("the device has returned, and our plugin was not called")
		}
		n.must(t, "del")
		n.same(t, "after DEL")
		if _, err := n.does(t, "add", none, debug.Debug{ReportResult: "INJECT-DNS"}); err != nil {
			t.Fatal(err)
		}
		n.must(t, "check") // with a result that another plugin has changed
		n.fails(t, "check", none, refuses, refused)
		n.must(t, "del")
		n.same(t, "after DEL with a changed result")
	})
}
