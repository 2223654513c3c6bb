package fabric_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/internal/testkit/walk"
)

// walkDevice is a device of the walk: a veth whose other end is on the far side, or a tap.
type walkDevice struct {
	name, peer string // peer: "" for a tap
	setup      []string
	conf       string
}

var walkDevices = []walkDevice{
	{name: "v0", peer: "v1", setup: append([]string{"link set v0 up"}, everything...), conf: `"device":"v0",` + static},
	{name: "w0", peer: "w1", setup: []string{
		"link set w0 mtu 2000 up", "addr add 10.2.0.1/24 dev w0",
		"route add 10.82.0.0/16 via 10.2.0.9 dev w0 table 7",
	}, conf: `"device":"w0","ipam":{"type":"host-local","dataDir":"/run/fabric-cni/addresses",` +
		`"ranges":[[{"subnet":"192.168.20.0/24"}]]}`},
	{name: "t0", setup: []string{"link set t0 up", "addr add 10.3.0.1/24 dev t0", "addr add fd00:3::1/64 dev t0 nodad"},
		conf: `"device":"t0","mtu":1400,"routing":{"sourceBased":true},` +
			`"ipam":{"type":"static","addresses":[{"address":"192.168.30.7/24","gateway":"192.168.30.1"}]}`},
	{name: "x0", peer: "x1", setup: []string{"link set x0 txqueuelen 55", "link property add dev x0 altname railx"},
		conf: `"device":"railx"`},
}

// walkWorld is a host with four devices and two pods.
type walkWorld struct {
	*node
	t      *testing.T
	third  sandbox.Netns // no pod's
	pods   []string
	held   []*exec.Cmd
	made   int // namespaces so far
	points map[string][]string
	start  string

	mu      sync.Mutex
	results map[walk.Attachment]string
}

func newWalkWorld(t *testing.T) *walkWorld {
	t.Helper()
	n := &node{host: sandbox.New(t), far: sandbox.New(t), state: t.TempDir(), etc: t.TempDir()}
	if err := os.MkdirAll("/run/fabric-cni", 0o700); err != nil {
		t.Fatal(err)
	}
	n.policy(t, allowIPAM("/run/fabric-cni/addresses"))
	w := &walkWorld{
		node: n, t: t, third: sandbox.New(t), pods: make([]string, 2),
		points: map[string][]string{}, results: map[walk.Attachment]string{},
	}
	for i := range w.pods {
		if err := w.newPod(i); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		w.release()
		for _, p := range w.pods {
			_ = exec.Command("ip", "netns", "delete", p).Run()
		}
	})
	for i := range walkDevices {
		if err := w.Plug(i); err != nil {
			t.Fatal(err)
		}
	}
	w.host.Settled(t)
	w.start = w.everything()
	w.trace()
	return w
}

// newPod makes the namespace at a pod's path. Its device "mark" has its other end on the far side, which shows when the
// kernel has ended the namespace with everything in it.
func (w *walkWorld) newPod(pod int) error {
	name := fmt.Sprintf("%s-pod%d", w.host.Name, pod)
	w.pods[pod] = name
	w.made++
	return sh(fmt.Sprintf(`ip netns add %[1]s; ip -n %[1]s link set lo up
ip -n %[1]s link add mark type veth peer name mark%[2]d netns %[3]s`, name, w.made, w.far.Name))
}

func sh(script string) error {
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

// trace finds out which points the calls pass, for kills at a point.
func (w *walkWorld) trace() {
	if tags != "failpoint" {
		return
	}
	for i := range walkDevices {
		for _, verb := range []string{"ADD", "DEL"} {
			file := filepath.Join(w.t.TempDir(), "trace")
			c := w.callOf(walk.Call{Verb: verb, Of: walk.Attachment{Device: i}, Netns: true})
			c.env = []string{"FABRIC_FAILPOINT_TRACE=" + file}
			w.must(w.t, c)
			b, err := os.ReadFile(file)
			if err != nil {
				w.t.Fatal(err)
			}
			w.points[fmt.Sprint(verb, i)] = strings.Fields(string(b))
		}
	}
	w.points["GC0"] = w.points["DEL0"]
}

// callOf is the call as the plugin gets it.
func (w *walkWorld) callOf(c walk.Call) call {
	fields := []string{walkDevices[c.Of.Device].conf}
	out := call{command: c.Verb, id: c.Of.ID(), ifName: c.Of.IfName()}
	if c.Netns {
		out.netns = "/run/netns/" + w.pods[c.Of.Pod]
	}
	if c.Verb == "GC" {
		out.id, out.ifName = "", ""
		valid := []map[string]string{}
		for _, a := range c.Valid {
			valid = append(valid, map[string]string{"containerID": a.ID(), "ifname": a.IfName()})
		}
		b, err := json.Marshal(valid)
		if err != nil {
			w.t.Error(err)
		}
		fields = append(fields, `"cni.dev/valid-attachments":`+string(b))
	}
	out.conf = confOf("1.1.0", fields...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.results[c.Of]; r != "" && (c.Verb == "CHECK" || c.Verb == "DEL") {
		out.conf = with(w.t, out.conf, r)
	}
	return out
}

// usual is what a call takes about: a kill comes within it.
const usual = 60 * time.Millisecond

func (w *walkWorld) Call(c walk.Call) (walk.Answer, error) {
	in := w.callOf(c)
	if c.Fault != "" && tags == "failpoint" {
		points := w.points[fmt.Sprint(c.Verb, c.Of.Device)]
		in.env = []string{"FABRIC_FAILPOINT=" + points[c.At*len(points)/1000] + ":" + c.Fault}
	}
	cmd := w.execution(in)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return walk.Answer{}, err
	}
	if c.Fault == "kill" && tags != "failpoint" {
		defer time.AfterFunc(usual*time.Duration(c.At)/1000, func() { _ = cmd.Process.Kill() }).Stop()
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !limit.Stop() {
		return walk.Answer{}, fmt.Errorf("%s of %s has not ended in two minutes", c.Verb, c.Of.ID())
	}
	a := walk.Answer{OK: err == nil, Killed: cmd.ProcessState.ExitCode() < 0}
	a.Text = strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")
	a.Text = a.Text[:min(len(a.Text), 500)]
	if strings.Contains(a.Text, "panic") || strings.Contains(a.Text, "internal error") {
		return a, fmt.Errorf("%s of %s: %s", c.Verb, c.Of.ID(), a.Text)
	}
	if a.OK && c.Verb == "ADD" {
		w.mu.Lock()
		w.results[c.Of] = stdout.String()
		w.mu.Unlock()
	}
	return a, nil
}

func (w *walkWorld) EndPod(pod int, held bool) error {
	name := w.pods[pod]
	if held {
		p := exec.Command("ip", "netns", "exec", name, "sleep", "1000000")
		if err := p.Start(); err != nil {
			return err
		}
		w.held = append(w.held, p)
		// Only in the namespace it holds it.
		path := fmt.Sprintf("/proc/%d/ns/net", p.Process.Pid)
		if err := sh(fmt.Sprintf("until [ %s -ef /run/netns/%s ]; do :; done", path, name)); err != nil {
			return err
		}
	}
	if err := sh("ip netns delete " + name); err != nil {
		return err
	}
	if !held {
		if err := w.ended(); err != nil {
			return err
		}
	}
	return w.newPod(pod)
}

// ended waits until the kernel has ended every namespace that nothing holds: there is one mark for each that lives.
func (w *walkWorld) ended() error {
	want := len(w.held) + len(w.pods)
	for _, p := range w.pods {
		if _, err := os.Stat("/run/netns/" + p); err != nil {
			want--
		}
	}
	return until(func() error {
		out, err := exec.Command("ip", "-n", w.far.Name, "-br", "link").Output()
		if err != nil {
			return err
		}
		if n := strings.Count("\n"+string(out), "\nmark"); n > want {
			return fmt.Errorf("%d network namespaces live, want %d", n, want)
		}
		return nil
	})
}

// until waits for what the kernel does by itself.
func until(f func() error) (err error) {
	sandbox.Soon(func() bool { err = f(); return err == nil })
	return err
}

func (w *walkWorld) release() {
	for _, p := range w.held {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	w.held = nil
}

// places are the namespaces in which a device may be.
func (w *walkWorld) places() []string {
	list := []string{w.host.Path, w.third.Path}
	for _, p := range w.pods {
		list = append(list, "/run/netns/"+p)
	}
	for _, p := range w.held {
		list = append(list, fmt.Sprintf("/proc/%d/ns/net", p.Process.Pid))
	}
	return list
}

// find returns the device's name in a namespace, "" if it is not there.
func (w *walkWorld) find(place string, device int) (string, error) {
	d := walkDevices[device]
	peer := 0
	if d.peer != "" {
		_, _ = fmt.Sscan(w.number(d.peer), &peer)
		if peer == 0 {
			return "", nil
		}
	}
	out, err := exec.Command("nsenter", "--net="+place, "ip", "-j", "-d", "link").Output()
	if err != nil {
		return "", err
	}
	var links []struct {
		Name string `json:"ifname"`
		Peer int    `json:"link_index"`
		Info struct {
			Kind string `json:"info_kind"`
		} `json:"linkinfo"`
	}
	if err := json.Unmarshal(out, &links); err != nil {
		return "", err
	}
	for _, l := range links {
		if d.peer == "" && l.Info.Kind == "tun" || d.peer != "" && l.Info.Kind == "veth" && l.Peer == peer {
			return l.Name, nil
		}
	}
	return "", nil
}

// number is the ifindex of a link on the far side, or "".
func (w *walkWorld) number(name string) string {
	out, _ := exec.Command("ip", "-n", w.far.Name, "-o", "link", "show", "dev", name).Output()
	n, _, _ := strings.Cut(string(out), ":")
	return n
}

func (w *walkWorld) Unplug(device int) error {
	if d := walkDevices[device]; d.peer != "" {
		_ = exec.Command("ip", "-n", w.far.Name, "link", "del", d.peer).Run() // if it is there
		return nil
	}
	for _, place := range w.places() {
		name, err := w.find(place, device)
		if err != nil {
			return err
		}
		if name != "" {
			return sh("nsenter --net=" + place + " ip link del " + name)
		}
	}
	return nil
}

// Plug makes a device that is nowhere.
func (w *walkWorld) Plug(device int) error {
	d := walkDevices[device]
	for _, place := range w.places() {
		if name, err := w.find(place, device); err != nil || name != "" {
			return err
		}
	}
	create := fmt.Sprintf("tuntap add %s mode tap\nlink set %[1]s address 02:00:00:00:01:0%[2]d", d.name, device)
	if d.peer != "" {
		create = fmt.Sprintf("link add %s address 02:00:00:00:01:0%d type veth peer name %s netns %s",
			d.name, device, d.peer, w.far.Name)
	}
	commands := append([]string{create}, d.setup...)
	cmd := exec.Command("ip", "-n", w.host.Name, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(commands, "\n"), "-6 ", ""))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w: %s", d.name, err, out)
	}
	if d.peer == "" {
		return nil
	}
	return sh("ip -n " + w.far.Name + " link set " + d.peer + " up")
}

func (w *walkWorld) Mischief(pod, device int, what string) error {
	place := "/run/netns/" + w.pods[pod]
	name, err := w.find(place, device)
	if err != nil || name == "" {
		return err
	}
	script, act := walk.Trick(what)
	if act != nil {
		ns, err := netns.Open(place)
		if err != nil {
			return err
		}
		defer ns.Close()
		return ns.Do(func() error { return act(name) })
	}
	cmd := exec.Command("ip", "netns", "exec", w.pods[pod], "sh", "-c", script)
	cmd.Env = append(os.Environ(), "D="+name, fmt.Sprint("I=", device),
		"OTHER="+walkDevices[(device+1)%len(walkDevices)].name,
		"THIRD="+w.third.Name, "SECOND="+w.pods[(pod+1)%len(w.pods)])
	_ = cmd.Run() // what the kernel refuses has not happened
	return nil
}

func (w *walkWorld) Home() (string, error) {
	w.release()
	if err := w.ended(); err != nil {
		return "", err
	}
	for i := range walkDevices {
		if err := w.Plug(i); err != nil {
			return "", err
		}
	}
	diff := w.difference()
	clear(w.results)
	return diff, nil
}
