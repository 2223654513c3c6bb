// Command demo boots the lab as a node with four rails and runs scripts/demo.sh in it. It exits with 1 if the node is
// not afterwards what it was before.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// programs are what the guest needs, as it is shipped: without failpoints.
var programs = []string{
	"./cmd/fabric", "./integration/lab/demo", "github.com/containernetworking/cni/cnitool",
	"github.com/containernetworking/plugins/plugins/ipam/host-local",
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 2 && args[0] == "-guest" {
		return inGuest(ctx, args[1], stdout)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	bin := filepath.Join(root, "build", "demo") + "/"
	switch {
	case len(args) == 0:
		return onHost(ctx, root, bin, stdout)
	case len(args) == 1 && args[0] == "-build": // while the lab is being set up
		return build(ctx, root, bin)
	}
	return errors.New("usage: demo [-build]")
}

// build makes the programs in a directory that stays: what is up to date there need not be linked again.
func build(ctx context.Context, root, bin string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", bin}, programs...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func onHost(ctx context.Context, root, bin string, stdout io.Writer) error {
	begin := time.Now()
	kernel, err := lab.Find("6.12")
	if os.Getenv("FABRIC_LAB_KERNELS") != "" {
		var kernels []lab.Kernel
		if kernels, err = lab.Kernels(); err == nil {
			kernel = kernels[0]
		}
	}
	if err != nil {
		return err
	}
	if err := build(ctx, root, bin); err != nil {
		return err
	}
	userland, err := lab.UserLand()
	if err != nil {
		return err
	}
	fmt.Fprintf(
		stdout,
		"Booting a node with simulated HCAs: Linux %s in QEMU, emulated, a few seconds ...\n",
		kernel.Release,
	)
	res, err := lab.Run(ctx, kernel, lab.Spec{
		Script: fmt.Sprintf("export FABRIC_DEMO_COLOR=%s FABRIC_USERLAND=%s\ncd %s && exec %sdemo -guest %s\n",
			color(), userland, root, bin, bin),
		Append:  []string{"ib_core.netns_mode=0"}, // exclusive, as "options ib_core netns_mode=0" in modprobe.d
		Devices: lab.VirtioNet(1),
		Timeout: 4 * time.Minute,
		Output:  stdout,
	})
	if err != nil {
		return err
	}
	if res.Status != 0 {
		return fmt.Errorf("failed in the guest, exit status %d", res.Status)
	}
	fmt.Fprintf(
		stdout,
		"\nDone in %.0f s, of which %.0f s to boot.\n%s",
		time.Since(begin).Seconds(),
		res.Boot.Seconds(),
		realHost,
	)
	return nil
}

const realHost = `
The same on a host with real HCAs, as root (it takes the named devices from the host for a few seconds, and asks first):

   # scripts/demo.sh ibs108 ibs110 -- ibs112 ibs114     two rails for pod-a, two for pod-b
   # scripts/demo.sh ibs108                             one rail, one pod

"rdma link" lists the names. For RDMA devices that are visible in their pod only, the host has to be in exclusive mode:
put "options ib_core netns_mode=0" into /etc/modprobe.d/ib_core.conf, update the initramfs, reboot.
`

// repository finds the directory of go.mod: go run leaves the working directory alone.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find repository: no go.mod above %s", dir)
		}
	}
}

// color is not empty if standard output is a terminal.
func color() string {
	info, err := os.Stdout.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != "" {
		return ""
	}
	return "yes"
}
