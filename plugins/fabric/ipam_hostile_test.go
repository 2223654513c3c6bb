package fabric_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// tree lists what is below a directory, with modes, sizes and what links lead to.
func tree(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", strings.TrimPrefix(path, dir), info.Mode())
		if target, err := os.Readlink(path); err == nil {
			line += " " + target
		}
		if info.Mode().IsRegular() {
			line += fmt.Sprintf(" %d", info.Size())
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// hostLocal is a configuration of v0, or of another device, with addresses of host-local; more is in its section too.
func hostLocal(name, device, more string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"fabric","device":%q,"ipam":{"type":"host-local",`+
		`"ranges":[[{"subnet":"10.7.0.0/24"}]]%s}}`, name, device, more)
}

// A configuration names files and directories that are none of its author's. It is refused in ADD, whether its device
// is there or not, and neither ADD nor DEL creates, changes, opens or awaits anything.
func TestIPAMRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // stands for /run, /etc, a volume of the author's pod
	host := filepath.Join(dir, "host")
	volume := filepath.Join(dir, "volume", "n")
	sandbox.Run(t, "sh", "-ec", fmt.Sprintf(`mkdir -p %[2]s; cd %[2]s; echo text >%[1]s
		ln -s %[1]s last_reserved_ip.0; ln -s %[3]s/nologin lock; mkfifo ranges %[3]s/fifo
		truncate -s 1T x; mknod %[3]s/null c 1 3; truncate -s 60M %[3]s/huge`, host, volume, dir))
	before := tree(t, dir)
	for name, tt := range map[string]struct{ network, more, want string }{
		"links in a volume":  {"n", `,"dataDir":"DIR/volume"`, `ipam.dataDir "DIR/volume" is not one of [`},
		"a file elsewhere":   {"nologin", `,"dataDir":"DIR"`, `ipam.dataDir "DIR" is not one of [`},
		"a directory":        {"x.service.d", `,"dataDir":"DIR/etc"`, "ipamDirs"},
		"a claim":            {"owner", `,"dataDir":"/run/fabric-cni/claims/v0"`, "ipamDirs"},
		"a lock":             {"v0", `,"dataDir":"/run/fabric-cni/locks"`, "ipamDirs"},
		"prepared":           {"prepared", `,"dataDir":"/run/fabric-cni"`, "ipamDirs"},
		"attachments":        {"attachments", `,"dataDir":"/run/../run/fabric-cni/"`, "ipamDirs"},
		"inside a network":   {"lock", `,"dataDir":"/var/lib/cni/networks/cbr0"`, "ipamDirs"},
		"relative":           {"n", `,"dataDir":"volume"`, "ipamDirs"},
		"proc":               {"n", `,"dataDir":"/proc/x"`, "ipamDirs"},
		"a FIFO":             {"n", `,"resolvConf":"DIR/fifo"`, `ipam.resolvConf "DIR/fifo" is not below one of [`},
		"a device":           {"n", `,"resolvConf":"/dev/null"`, "ipamConfDirs"},
		"a huge file":        {"n", `,"resolvConf":"DIR/huge"`, "ipamConfDirs"},
		"out of /etc":        {"n", `,"resolvConf":"/etc/../dev/null"`, "ipamConfDirs"},
		"links out of /etc":  {"n", `,"resolvConf":"/etc/cni/escape"`, "ipamConfDirs"},
		"executed elsewhere": {"n", `,"dataDir":"DIR/volume","lease":"1h"`, `ipam.dataDir "DIR/volume" is`},
		"another Fabric's":   {"n", `,"dataDir":"/run/fabric-cni/ipam"`, `published no configuration of name "n"`},
		"executed there":     {"n", `,"dataDir":"/run/fabric-cni/ipam/","lease":"1h"`, "only the built-in host-local"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if err := os.Symlink("/proc/self/environ", filepath.Join(n.etc, "escape")); err != nil {
				t.Fatal(err)
			}
			for _, device := range []string{"v0", "nosuch"} {
				fill := strings.NewReplacer("DIR", dir)
				c := n.call("ADD", hostLocal(tt.network, device, fill.Replace(tt.more)))
				a := n.run(t, c)
				want := fill.Replace(tt.want)
				if a.ok || device == "v0" && (a.Code != 104 || !strings.Contains(a.Msg, want)) {
					t.Errorf("ADD of %s: %+v, want code 104: %s", device, a, want)
				}
				n.same(t, "after ADD")
				c.command = "DEL"
				n.must(t, c)
				n.must(t, c)
				n.same(t, "after DEL")
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

// The owner lets host-local work in a directory, and what is in there is hostile all the same: no link is followed, and
// what is no small regular file is neither read nor awaited.
func TestIPAMHostileDirectory(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		setup string // in the directory of the network
		want  string // in the error of ADD; empty: ADD succeeds
		del   string // likewise of DEL
	}{
		"last address is a link":      {setup: `ln -s ../host last_reserved_ip.0`},
		"last address is a hard link": {setup: `ln ../host last_reserved_ip.0`},
		"last address is a FIFO":      {setup: `mkfifo last_reserved_ip.0`},
		"the lock is a link":          {setup: `ln -s ../made lock`, want: "symbolic links", del: "symbolic links"},
		"the lock is a FIFO":          {setup: `mkfifo lock`, want: "no regular file", del: "no regular file"},
		"the directory is a link":     {setup: `cd ..; rmdir n; mkdir o; ln -s o n`, want: "symbolic", del: "symbolic"},
		"a file of a terabyte":        {setup: `truncate -s 1T x 10.7.0.2 last_reserved_ip.0`},
		"a tree with FIFOs":           {setup: `mkdir -p a/b; mkfifo a/b/10.7.0.9 a/b/f 10.7.0.8; mkdir 10.7.0.7`},
		"addresses are links":         {setup: `ln -s /dev/zero 10.7.0.2; ln -s ../host 10.7.0.3`},
		"ranges is a FIFO":            {setup: `mkfifo ranges`, want: "no regular file"},
		"ranges is a terabyte":        {setup: `truncate -s 1T ranges`, want: "65536 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, dir := newNode(t), t.TempDir()
			n.policy(t, allowIPAM(dir))
			sandbox.Run(t, "sh", "-ec", fmt.Sprintf("cd %s; echo text >host; mkdir n; cd n; %s", dir, tt.setup))
			before := tree(t, dir)
			c := n.call("ADD", hostLocal("n", "v0", fmt.Sprintf(`,"dataDir":%q`, dir)))
			a := n.run(t, c)
			if a.ok != (tt.want == "") || !strings.Contains(a.Msg, tt.want) {
				t.Errorf("ADD: %+v, want %s", a, tt.want)
			}
			c.command = "DEL"
			for try := 1; ; try++ { // an ADD that never succeeded ends after three tries
				a := n.run(t, c)
				if a.ok {
					break
				}
				if tt.del == "" || !strings.Contains(a.Msg, tt.del) || try == 3 {
					t.Fatalf("DEL %d: %+v, want %s", try, a, tt.del)
				}
			}
			n.same(t, "after DEL")
			if b, err := os.ReadFile(filepath.Join(dir, "host")); err != nil || string(b) != "text\n" {
				t.Errorf("the host's file: %q, %v", b, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "made")); err == nil {
				t.Error("a file was made through a link")
			}
			if left := tree(t, dir); tt.want != "" {
				left = withoutLock(left)
				if diff := cmp.Diff(before, left); diff != "" {
					t.Errorf("-before +after:\n%s", diff)
				}
			}
		})
	}
}

func withoutLock(tree []string) (out []string) {
	for _, line := range tree {
		if !strings.HasPrefix(line, "/n/lock -") {
			out = append(out, line)
		}
	}
	return out
}

// A resolvConf in a directory of the owner's that is no small regular file is not read.
func TestIPAMHostileResolvConf(t *testing.T) {
	t.Parallel()
	n, dir := newNode(t), t.TempDir()
	n.policy(t, fmt.Sprintf(`{"allowVirtual": true, "ipamDirs": [%q], "ipamConfDirs": [%q]}`, dir, dir))
	sandbox.Run(t, "sh", "-ec", fmt.Sprintf(`cd %s; truncate -s 60M huge; mkfifo fifo; mknod null c 1 3; mkdir dir
		echo nameserver 10.0.0.53 >good`, dir))
	for file, want := range map[string]string{
		"huge": "want 65536 at most", "fifo": "no regular file", "null": "no regular file", "dir": "no regular file",
		"good": "",
	} {
		c := n.call("ADD", hostLocal("n", "v0", fmt.Sprintf(`,"dataDir":%q,"resolvConf":"%s/%s"`, dir, dir, file)))
		a := n.run(t, c)
		if a.ok != (want == "") || !strings.Contains(a.Msg, want) || a.ok && !strings.Contains(a.stdout, "10.0.0.53") {
			t.Errorf("%s: %+v, want %q", file, a, want)
		}
		c.command = "DEL"
		n.must(t, c)
		n.same(t, "after DEL")
	}
}

// Another process holds the lock for ever: every verb gives up with an error that names the directory.
func TestIPAMLockHeld(t *testing.T) {
	t.Parallel()
	n, dir := newNode(t), t.TempDir()
	n.policy(t, allowIPAM(dir))
	conf := hostLocal("n", "v0", fmt.Sprintf(`,"dataDir":%q`, dir))
	added := n.must(t, n.call("ADD", conf))
	f, err := os.Open(filepath.Join(dir, "n", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	check := n.call("CHECK", with(t, conf, added.stdout))
	second := n.call("ADD", conf)
	second.id, second.netns = "c2", sandbox.New(t).Path
	n.host.IP(t, "link", "add", "d0", "type", "veth", "peer", "name", "d1")
	second.conf = strings.Replace(conf, `"v0"`, `"d0"`, 1)
	calls := []*running{n.start(t, check)}
	n.waiting(t, filepath.Join(dir, "n", "lock")) // it has seen the interface
	calls = append(calls, n.start(t, second), n.start(t, n.call("DEL", conf)))
	for i, r := range calls {
		if a := <-r.done; a.ok || !strings.Contains(a.Msg, "holds the lock of "+filepath.Join(dir, "n")) {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if !n.host.Has(t, "v0") {
		t.Error("the device is not home")
	}
	f.Close()
	second.command = "DEL"
	n.must(t, second)
	n.must(t, n.call("DEL", conf))
	n.host.IP(t, "link", "delete", "d0")
	n.same(t, "after DEL")
}

// Addresses of a node's range are given to the configuration that the agent has published for this Fabric, and to no
// other one that says that it is it.
func TestIPAMOfFabric(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	conf := hostLocal("ib", "v0", `,"dataDir":"/run/fabric-cni/ipam"`)
	sandbox.Run(t, "sh", "-ec", fmt.Sprintf(`cd %s; mkdir -p networks ipam/ib
		echo '{"ranges":["10.7.0.0/24"]}' >ipam/ib/ranges; cat >networks/fabric-agent-ib.conf <<'END'
%s
END`, n.state, conf))
	var sets []string
	for i := range 61 {
		const one = `[{"subnet":"10.7.0.0/24","rangeStart":"10.7.0.%d","rangeEnd":"10.7.0.%[1]d"}]`
		sets = append(sets, fmt.Sprintf(one, i+2))
	}
	before := tree(t, n.state+"/ipam")
	for name, tt := range map[string]struct{ old, with, want string }{
		"all addresses":    {`[[{"subnet":"10.7.0.0/24"}]]`, "[" + strings.Join(sets, ",") + "]", `"ipam" differs`},
		"another device":   {`"v0"`, `"eth0"`, "no such device"},
		"another name":     {`"ib"`, `"ib2"`, `published no configuration of name "ib2"`},
		"a way out":        {`"ib"`, `"../networks"`, "name"},
		"another setting":  {`"type":"fabric"`, `"type":"fabric","mtu":1400`, `"mtu" differs`},
		"a setting left":   {`"ranges"`, `"routes":[],"ranges"`, `"ipam" differs`},
		"ranges of Multus": {`"type":"fabric"`, `"type":"fabric","runtimeConfig":{"ipRanges":[[{}]]}`, "ipRanges"},
	} {
		c := n.call("ADD", strings.Replace(conf, tt.old, tt.with, 1))
		if a := n.run(t, c); a.ok || !strings.Contains(strings.ToLower(a.Msg), strings.ToLower(tt.want)) {
			if name != "another device" {
				t.Errorf("%s: %+v, want %s", name, a, tt.want)
			}
		}
		c.command = "DEL"
		if a := n.run(t, c); !a.ok && name != "a way out" {
			t.Errorf("%s: DEL: %+v", name, a)
		}
		if diff := cmp.Diff(before, tree(t, n.state+"/ipam")); diff != "" {
			t.Errorf("%s: -before +after:\n%s", name, diff)
		}
	}
	// As Multus and the runtime give it.
	c := n.call("ADD", strings.Replace(conf, `{"cniVersion":"1.1.0"`, `{"cniVersion":"1.0.0","deviceID":"",`+
		`"runtimeConfig":{"mac":""},"args":{"cni":{}},"cni.dev/valid-attachments":[]`, 1))
	if a := n.must(t, c); !strings.Contains(a.stdout, "10.7.0.") {
		t.Errorf("%+v", a)
	}
	c.command = "DEL"
	n.must(t, c)
}

// ipamTypes names the plugins that may run; files of those that are known are looked at before they start.
func TestIPAMTypes(t *testing.T) {
	t.Parallel()
	n, g := newNode(t), newGate(t, "whereabouts")
	for _, typ := range []string{"dhcp", "nv-ipam", "gate"} {
		if err := os.Symlink("whereabouts", filepath.Join(g.dir, typ)); err != nil {
			t.Fatal(err)
		}
	}
	n.policy(t, `{"allowVirtual": true, "ipamTypes": ["whereabouts", "dhcp", "nv-ipam"]}`)
	for ipam, want := range map[string]string{
		`{"type":"gate"}`: `ipam.type "gate" is not among ["whereabouts" "dhcp" "nv-ipam"] (ipamTypes)`,
		`{"type":"static","addresses":[{"address":"10.7.0.5/24"}]}`:                        `ipam.type "static"`,
		`{"type":"whereabouts","kubernetes":{"kubeconfig":"/tmp/x"}}`:                      "ipam.kubernetes.kubeconfig",
		`{"type":"whereabouts","kubernetes":{"KubeConfig":"/tmp/x"},"Kubernetes":{}}`:      "ipam.kubernetes.kubeconfig",
		`{"type":"whereabouts","configuration_path":"/etc/../tmp/x"}`:                      "ipam.configuration_path",
		`{"type":"whereabouts","log_file":"/run/nologin"}`:                                 "ipam.log_file",
		`{"type":"whereabouts","log_file":"/var/log/fabric-cni/../../../run/nologin"}`:     "ipam.log_file",
		`{"type":"dhcp","daemonSocketPath":"/tmp/x"}`:                                      "ipam.daemonSocketPath",
		`{"type":"nv-ipam","daemonSocket":"unix:///tmp/x"}`:                                "ipam.daemonSocket",
		`{"type":"nv-ipam","logFile":"/run/nologin"}`:                                      "ipam.logFile",
		`{"type":"nv-ipam","confDir":"/tmp"}`:                                              "ipam.confDir",
		`{"type":"whereabouts","kubernetes":{"kubeconfig":"/etc/cni/net.d/w.kubeconfig"}}`: "",
	} {
		c := n.call("ADD", confOf("1.1.0", `"device":"v0"`, `"ipam":`+ipam))
		c.env = []string{"CNI_PATH=" + g.dir}
		a := n.run(t, c)
		if a.ok != (want == "") || !a.ok && (a.Code != 104 || !strings.Contains(a.Msg, want)) {
			t.Errorf("%s: %+v, want %q", ipam, a, want)
		}
		c.command = "DEL"
		n.must(t, c)
		if started := g.calls(t) != ""; started != (want == "") {
			t.Errorf("%s: started %v", ipam, started)
		}
		_ = os.Remove(filepath.Join(g.dir, "calls"))
		n.same(t, ipam)
	}
}
