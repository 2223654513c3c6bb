package fabric_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/calls"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// binDir names, for the tests, where the plugins were built.
const binDir = "FABRIC_TEST_BIN"

func TestMain(m *testing.M) { sandbox.Main(m, build) }

// build compiles the plugin with the tags of this test, and the IPAM plugins in the version that go.mod pins.
func build() (func(), error) {
	dir, err := os.MkdirTemp("", "fabric-test")
	if err != nil {
		return nil, err
	}
	cleanup := func() { os.RemoveAll(dir) }
	const cni = "github.com/containernetworking/cni/"
	const ipam = "github.com/containernetworking/plugins/plugins/ipam/"
	cmd := exec.Command(
		"go",
		"build",
		"-buildvcs=false",
		detector,
		"-tags",
		tags,
		"-o",
		dir,
		"../../cmd/fabric",
		"../../cmd/fabricctl",
		ipam+"static",
		ipam+"host-local",
		cni+"cnitool",
		cni+"plugins/test/noop",
	)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		cleanup()
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	return cleanup, os.Setenv(binDir, dir)
}

// node is a host with a device (v0, one end of a veth pair) and a pod, with a state directory and /etc/cni of its own.
type node struct {
	host, pod, far sandbox.Netns
	state, etc     string
	before         string
	lasts          int // a process in the node's mount namespace, if that outlives a call; else 0
}

func newNode(t *testing.T, setup ...string) *node {
	t.Helper()
	n := &node{host: sandbox.New(t), pod: sandbox.New(t), far: sandbox.New(t), state: t.TempDir(), etc: t.TempDir()}
	if err := os.MkdirAll("/run/fabric-cni", 0o700); err != nil {
		t.Fatal(err)
	}
	n.policy(t, sandbox.AllowVirtual)
	n.host.Veth(t, "v0", n.far, "v1")
	for _, c := range setup {
		n.host.IP(t, strings.Fields(c)...)
	}
	n.host.Settled(t)
	n.before = n.host.State(t)
	return n
}

// call is one CNI call.
type call struct {
	command, id, ifName, netns string
	conf                       string
	env                        []string
	started                    func(*exec.Cmd) // called when the process runs; may be nil
}

// ADD, DEL and CHECK of the usual attachment.
func (n *node) call(command, conf string) call {
	return call{command: command, id: "c1", ifName: "net1", netns: n.pod.Path, conf: conf}
}

// answer is what the plugin said.
type answer struct {
	stdout, stderr string
	ok             bool
	Code           uint   `json:"code"`
	Msg            string `json:"msg"`
}

// hangsAfter is longer than any call takes: a runtime kills it earlier.
const hangsAfter = 4 * time.Minute

// run executes the plugin in the host's namespaces. /run/fabric-cni and /etc/cni are those of the node.
func (n *node) run(t *testing.T, c call) answer {
	t.Helper()
	cmd := n.execution(c)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Start()
	if c.started != nil {
		c.started(cmd)
	}
	if err == nil {
		hangs := time.AfterFunc(hangsAfter, func() { _ = cmd.Process.Signal(unix.SIGQUIT) }) // its stacks say where
		err = cmd.Wait()
		if !hangs.Stop() {
			t.Errorf("%s of %s did not end in %s: %s", c.command, c.ifName, hangsAfter, stderr.String())
		}
	}
	a := answer{stdout: stdout.String(), stderr: stderr.String(), ok: err == nil}
	if !a.ok && len(a.stdout) > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
			t.Errorf("%s: no error object: %v: %s", c.command, err, a.stdout)
		}
	}
	return a
}

// execution is the plugin's process of a call.
func (n *node) execution(c call) *exec.Cmd {
	cmd := n.command("fabric")
	cmd.Env = append(
		os.Environ(),
		"CNI_COMMAND="+c.command,
		"CNI_CONTAINERID="+c.id,
		"CNI_IFNAME="+c.ifName,
		"CNI_NETNS="+c.netns,
		"CNI_PATH="+os.Getenv(binDir),
	)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdin = strings.NewReader(c.conf)
	return cmd
}

// command is a program of ours, on the node.
func (n *node) command(program string, args ...string) *exec.Cmd {
	program = filepath.Join(os.Getenv(binDir), program)
	if n.lasts != 0 {
		all := []string{"--target", strconv.Itoa(n.lasts), "--mount", "--net", program}
		return exec.Command("nsenter", append(all, args...)...)
	}
	all := []string{"netns", "exec", n.host.Name, "sh", "-ec", mounts + ` && shift 2 && exec "$@"`, "sh",
		n.state, n.etc, program}
	return exec.Command("ip", append(all, args...)...)
}

// mounts makes /run/fabric-cni and /etc/cni those of a node.
const mounts = `mount --bind "$1" /run/fabric-cni && mount --bind "$2" /etc/cni`

// last makes what calls mount stay until the test ends, as on a machine.
func (n *node) last(t *testing.T) {
	t.Helper()
	n.lasts, _ = sandbox.Hold(t, "set -- "+n.state+" "+n.etc+"; "+mounts, "ip", "netns", "exec", n.host.Name)
}

// plan is what fabricctl plan prints for an ADD.
func (n *node) plan(c call) (stdout string, err error) { return n.planWith(c) }

// planWith is plan with more flags.
func (n *node) planWith(c call, flags ...string) (stdout string, err error) {
	args := []string{"plan", "--netns", c.netns, "--ifname", c.ifName, "--container", c.id, "-f", "-"}
	cmd := n.command("fabricctl", append(args, flags...)...)
	cmd.Stdin = strings.NewReader(c.conf)
	b, err := cmd.Output()
	return string(b), err
}

// must runs a call that has to succeed.
func (n *node) must(t *testing.T, c call) answer {
	t.Helper()
	a := n.run(t, c)
	if !a.ok {
		t.Fatalf("%s of %s: code %d: %s%s", c.command, c.id, a.Code, a.Msg, a.stderr)
	}
	return a
}

// same checks that the host is as it was, and that nothing is on file.
func (n *node) same(t *testing.T, when string) {
	t.Helper()
	var diff string
	lasting := func(state string) string { return remaining.ReplaceAllString(state, "$1") } // a lifetime runs on
	if !sandbox.Soon(func() bool { diff = cmp.Diff(lasting(n.before), lasting(n.host.State(t))); return diff == "" }) {
		t.Errorf("%s: the host is not what it was (-before +after):\n%s", when, diff)
	}
	if files := n.files(t); len(files) > 0 {
		t.Errorf("%s: left on file: %v", when, files)
	}
}

// files lists the journal without the locks, which stay, and the notes for the agent.
func (n *node) files(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(n.state, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, n.state+"/")
		if err == nil && !d.IsDir() && !strings.HasPrefix(name, "locks/") && name != calls.File {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// policy writes the node's policy. One that is to allow v0 needs allowVirtual: it is a veth.
func (n *node) policy(t *testing.T, content string) {
	t.Helper()
	dir := filepath.Join(n.etc, "fabric.d")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// allowIPAM is a policy that allows v0, and addresses of host-local in a directory of the test.
func allowIPAM(dir string) string {
	return fmt.Sprintf(`{"allowVirtual": true, "ipamDirs": [%q]}`, dir)
}

// conf is a configuration with fields added, of the latest version, for v0 with addresses from the IPAM plugin static.
func conf(fields ...string) string {
	return confOf("1.1.0", append([]string{`"device":"v0"`, static}, fields...)...)
}

func confOf(version string, fields ...string) string {
	return `{"cniVersion":"` + version + `","name":"rail","type":"fabric",` + strings.Join(fields, ",") + `}`
}

const static = `"ipam":{"type":"static","addresses":[{"address":"192.168.10.7/24","gateway":"192.168.10.1"},` +
	`{"address":"2001:db8:10::7/64"}],` +
	`"routes":[{"dst":"10.20.0.0/16"}]}`

// with is conf with the result of ADD as its prevResult.
func with(t *testing.T, conf, result string) string {
	t.Helper()
	var c map[string]json.RawMessage
	if err := json.Unmarshal([]byte(conf), &c); err != nil {
		t.Fatal(err)
	}
	c["prevResult"] = json.RawMessage(result)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// everything a device can carry on the host.
var everything = []string{
	"link set v0 mtu 4092 alias rail txqueuelen 77 group 5",
	"link property add dev v0 altname enp59s0 altname rail0",
	"link set v0 addrgenmode none",
	"addr add 10.1.0.1/24 dev v0",
	"addr add 10.1.0.2/24 dev v0",
	"addr add 2001:db8::1/64 dev v0",
	"addr add 2001:db8::2/64 dev v0",
	"route add 10.8.0.0/16 via 10.1.0.9 dev v0 src 10.1.0.2",
	"-6 route add 2001:db8:8::/48 via 2001:db8::9 dev v0 table 100",
}
