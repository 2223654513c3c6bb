package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab"
	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// LabNode is a worker node that is a guest of the lab: a kernel of its own with simulated HCAs. Its RDMA mode is what
// its modprobe.d had when its initramfs was made, as on most nodes: exclusive at first, unless Boot is told otherwise.
type LabNode struct {
	Name   string
	Number int
	Rails  []Rail // those with a cable
	Spares []Rail // those without, on platform devices

	cluster *Cluster
	dir     string // its /out
	cancel  context.CancelFunc
	ended   chan error
}

// Rail is an HCA of a LabNode. PCI is empty if it is on a platform device.
type Rail struct{ HCA, Netdev, PCI string }

// nodeKernel is what nodes of the lab run.
const nodeKernel = "6.12"

//go:embed labnode.sh
var labnodeScript string

// firstSlot is where the PCI functions of the rails begin: above those that QEMU uses itself.
const firstSlot = 0x10

// railAt returns the PCI address of a rail, and what QEMU has to be told for it. fakeib drives the function as an HCA.
// Two rails are below the PCIe root pci0000:00, the others below pci0000:40, each behind a port of its own.
func railAt(i int) (address string, qemu []string) {
	if i < 2 {
		return fmt.Sprintf("0000:00:%02x.0", firstSlot+i), []string{
			"-device", fmt.Sprintf("nvme,serial=rail%d,bus=pcie.0,addr=%#x", i, firstSlot+i),
		}
	}
	return fmt.Sprintf("0000:%02x:00.0", 0x41+i-2), []string{
		"-device", fmt.Sprintf("pcie-root-port,id=port%[1]d,bus=second,chassis=%[1]d,slot=%[1]d,addr=%[2]d", i, i-2),
		"-device", fmt.Sprintf("nvme,serial=rail%[1]d,bus=port%[1]d", i),
	}
}

// Boot starts a node, without its kubelet. Its rails are called as they are called on this node and no other; those
// without a cable get one by Plug.
func (c *Cluster) Boot(number int, images []string, mode string, rails, spares []Rail) (*LabNode, error) {
	n := &LabNode{
		Name:    fmt.Sprintf("lab%d", number),
		Number:  number,
		Rails:   rails,
		Spares:  spares,
		cluster: c,
		ended:   make(chan error, 1),
	}
	n.dir = filepath.Join(c.run, n.Name)
	for i := range n.Rails {
		n.Rails[i].PCI, _ = railAt(i)
	}
	if err := n.files(images); err != nil {
		return nil, err
	}
	if err := n.initramfs(mode); err != nil {
		return nil, err
	}
	// The address is the guest's. Here it is one that QEMU listens on, and a connection must not come from it.
	for _, args := range []string{
		"addr add IP/32 dev lo",
		"route replace local IP dev lo src " + nodeIP + " table local",
	} {
		if out, err := exec.Command(
			"ip",
			strings.Fields(strings.ReplaceAll(args, "IP", n.IP()))...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("address of node %s: %w: %s", n.Name, err, out)
		}
	}
	return n, n.powerOn()
}

// IP is the node's address.
func (n *LabNode) IP() string { return fmt.Sprintf("10.77.%d.1", n.Number) }

func (n *LabNode) powerOn() error {
	kernel, err := lab.Find(nodeKernel)
	if err != nil {
		return err
	}
	devices := []string{
		"-netdev",
		fmt.Sprintf("user,id=n0,hostfwd=tcp:%[1]s:10250-:10250,hostfwd=tcp:%[1]s:2222-:2222", n.IP()),
		"-device",
		"virtio-net-pci,netdev=n0,romfile=",
	}
	devices = append(devices, lab.E1000e(2)...) // without a driver, until a test loads it
	devices = append(devices, "-device", "pxb-pcie,id=second,bus_nr=0x40,bus=pcie.0")
	for i, r := range n.Rails {
		if r.PCI != "" {
			_, args := railAt(i)
			devices = append(devices, args...)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() {
		res, err := lab.Run(ctx, kernel, lab.Spec{
			Script: labnodeScript, OutDir: n.dir, Devices: devices, MemoryMiB: 1536, Timeout: time.Hour,
			Append: []string{"apparmor=0", "audit=0"}, Once: true,
		})
		if err == nil && res.Status != 0 {
			err = fmt.Errorf("the set-up of node %s ended with status %d", n.Name, res.Status)
		}
		n.ended <- err
	}()
	return nil
}

// Shutdown ends the guest, and returns what its kernel has complained about.
func (n *LabNode) Shutdown() error {
	if err := os.WriteFile(filepath.Join(n.dir, "end"), nil, 0o600); err != nil {
		return err
	}
	patience := 2 * time.Minute
	if _, err := os.Stat(filepath.Join(n.dir, "booted")); err != nil {
		patience = 0 // it has never been up
	}
	stuck := time.AfterFunc(patience, n.cancel)
	defer stuck.Stop()
	err := <-n.ended
	n.ended <- err
	return err
}

// Reboot cuts the power and boots again. What was on RAM disks is gone.
func (n *LabNode) Reboot() error {
	n.cancel()
	if err := <-n.ended; err == nil {
		return fmt.Errorf("node %s has ended before its power was cut", n.Name)
	}
	return n.powerAgain()
}

// powerAgain boots a guest that has ended.
func (n *LabNode) powerAgain() error {
	if err := os.Remove(filepath.Join(n.dir, "booted")); err != nil {
		return err
	}
	return n.powerOn()
}

// FollowReboots boots the node again, with its kubelet, whenever it has rebooted itself, until stop is called.
func (n *LabNode) FollowReboots(fail func(error)) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case err := <-n.ended:
				if err = n.bootAgain(err); err != nil {
					n.ended <- err
					fail(err)
					return
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-ended
	})
}

// WhenImported has a script run at each later boot, when the node has its images.
func (n *LabNode) WhenImported(script string) error {
	return os.WriteFile(filepath.Join(n.dir, "images.sh"), []byte(script), 0o600)
}

// bootAgain is what a machine does after a reboot.
func (n *LabNode) bootAgain(ended error) error {
	var guest *lab.GuestError
	if !errors.As(ended, &guest) || len(guest.Lines) > 0 {
		return fmt.Errorf("node %s has not rebooted: %w", n.Name, ended)
	}
	if err := n.powerAgain(); err != nil {
		return err
	}
	return n.StartKubelet()
}

// initramfs writes the mode that the node boots in first.
func (n *LabNode) initramfs(mode string) error {
	if mode == "shared" {
		return nil // the kernel's default
	}
	for _, dir := range []string{"modprobe.d", "initramfs"} {
		dir = filepath.Join(n.dir, dir)
		err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "ib_core.conf"), []byte("options ib_core netns_mode=0\n"), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// files writes what the guest finds in /out.
func (n *LabNode) files(images []string) error {
	if err := os.MkdirAll(filepath.Join(n.dir, "net.d"), 0o755); err != nil {
		return err
	}
	words := func(rails []Rail) string {
		var list []string
		for _, r := range rails {
			list = append(list, r.HCA+"="+r.Netdev)
		}
		return strings.Join(list, " ")
	}
	for _, image := range images {
		if err := os.Link(image, filepath.Join(n.dir, filepath.Base(image))); err != nil {
			return err
		}
	}
	if err := n.cluster.authority.sign(n.Name, "system:node:"+n.Name, "system:nodes", n.IP(), n.Name); err != nil {
		return err
	}
	net := filepath.Join(n.dir, "net.d")
	errs := []error{n.cluster.kubeconfigAt(filepath.Join(n.dir, "kubelet.kubeconfig"), nodeURL, n.Name)}
	for _, who := range []string{"multus", "whereabouts"} {
		dir := filepath.Join(net, who+".d")
		errs = append(errs, os.MkdirAll(dir, 0o755))
		token, err := n.cluster.token(who)
		errs = append(errs, err, n.cluster.kubeconfigAt(filepath.Join(dir, who+".kubeconfig"), nodeURL, token))
	}
	runDirs := strings.NewReplacer(
		"address: "+nodeIP,
		"address: 0.0.0.0",
		"nodeStatusUpdateFrequency: 1s",
		"nodeStatusUpdateFrequency: 4s", // emulated CPUs
		"RUN/containerd",
		"/var/lib/containerd",
		"RUN/pki/kubelet",
		n.cluster.run+"/pki/"+n.Name,
		"RUN",
		n.cluster.run,
	)
	userland, err := lab.UserLand()
	if err != nil {
		return err
	}
	env := fmt.Sprintf("NAME=%s\nNUMBER=%d\nHCAS=%q\nSPARES=%q\nCACHE=%s\nRUN=%s\nUSERLAND=%s\n",
		n.Name, n.Number, words(n.Rails), words(n.Spares), n.cluster.cache, n.cluster.run, userland)
	podNet := fmt.Sprintf("10.244.%d.0/24", n.Number)
	for file, text := range map[string]string{
		"env":                                  env,
		"containerd.toml":                      runDirs.Replace(containerdConfig),
		"kubelet.yaml":                         runDirs.Replace(kubeletConfig) + n.cluster.half.kubeletGates(),
		"net.d/whereabouts.d/whereabouts.conf": whereaboutsConf,
		"net.d/00-multus.conf":                 strings.ReplaceAll(multusConf, "10.244.0.0/24", podNet),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

// StartKubelet starts it, again if need be, once the node has its HCAs, containerd and the images.
func (n *LabNode) StartKubelet() error {
	// A guest first waits until few others run on this machine. One that has begun and hangs is lab.Run's to end.
	if err := n.wait("has booted", 20*time.Minute, func() error {
		_, err := os.Stat(filepath.Join(n.dir, "booted"))
		return err
	}); err != nil {
		return err
	}
	_, err := n.Run(fmt.Sprintf(`. /out/env; export PATH=$CACHE/debroot/usr/sbin:$PATH
setsid $CACHE/bin/kubelet --config /out/kubelet.yaml --kubeconfig /out/kubelet.kubeconfig \
  --hostname-override %s --node-ip %s --root-dir /var/lib/kubelet \
  --housekeeping-interval 30s -v=2 >>/out/kubelet.log 2>&1 </dev/null &
echo $! >/run/kubelet.pid`, n.Name, n.IP()))
	return err
}

// Ready waits until the API server calls the node Ready, in its present boot.
func (n *LabNode) Ready() error {
	boot, err := n.Run("cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	want := strings.TrimSpace(boot) + " True"
	return n.wait("is Ready", 4*time.Minute, func() error {
		got, err := output("kubectl", "get", "node", n.Name, "-o",
			`jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && got != want {
			err = fmt.Errorf("boot and Ready are %q, want %q", got, want)
		}
		return err
	})
}

// wait polls, unless the guest has ended.
func (n *LabNode) wait(what string, limit time.Duration, f func() error) error {
	var ended error
	err := poll("node "+n.Name+" "+what, limit, soon, func() error {
		select {
		case ended = <-n.ended:
			n.ended <- ended
			return nil
		default:
			return f()
		}
	})
	return errors.Join(err, ended)
}

// Run executes a shell script on the node and returns its output.
func (n *LabNode) Run(script string) (string, error) {
	out, status, err := n.call(http.MethodPost, "/run", script)
	if err == nil && status != "0" {
		err = fmt.Errorf("exit status %s: %s", status, out)
	}
	if err != nil {
		err = fmt.Errorf("on node %s: %s: %w", n.Name, script, err)
	}
	return string(out), err
}

// State is what the lab's tests compare of a host.
func (n *LabNode) State() (s guest.State, err error) {
	b, _, err := n.call(http.MethodGet, "/state", "")
	if err != nil {
		return s, fmt.Errorf("state of node %s: %w", n.Name, err)
	}
	return s, json.Unmarshal(b, &s)
}

func (n *LabNode) call(method, path, body string) (answer []byte, status string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), machine.scaled(3*time.Minute))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.IP()+":2222"+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Close = true // the guest may be another one next time
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, res.Header.Get("X-Status"), err
}

// Logs writes the ends of what the node has to say.
func (n *LabNode) Logs(w io.Writer) {
	for _, file := range []string{"console", "output", "containerd.log", "kubelet.log"} {
		if b, err := os.ReadFile(filepath.Join(n.dir, file)); err == nil {
			fmt.Fprintf(w, "==> %s: %s\n%s\n", n.Name, file, lastLines(string(b), 20))
		}
	}
	out, err := n.Run(
		`cd /var/log
for log in multus.log pods/fabric-system_*/*/*.log; do echo "==> $log"; tail -n 20 $log | cut -c1-600; done
find /run/fabric-cni -type f; ip -br link; ls -l /sys/class/infiniband; ls /run/netns; dmesg | tail -n 10`,
	)
	fmt.Fprintf(w, "%s\n", out)
	if err != nil {
		fmt.Fprintln(w, err)
	}
}
