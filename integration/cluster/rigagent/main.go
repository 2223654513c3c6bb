// Command rigagent is fabric-agent for a node whose kernel has no RDMA: the interfaces that its first argument names
// are the node's devices. Everything else of it is the agent's own, flags included.
//
//	rigagent RAIL,RAIL,... run [flag...]
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// files are device files that a container has only when it is given them.
var files = []string{"/dev/fuse", "/dev/hwrng", "/dev/autofs", "/dev/btrfs-control"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rigagent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 || args[1] != "run" {
		return errors.New("usage: rigagent RAIL,RAIL,... run [flag...]")
	}
	o, err := agent.Parse(args[1:], os.Stderr)
	if err != nil {
		return err
	}
	names := strings.Split(args[0], ",")
	o.Survey = func() ([]survey.Device, error) { return read(names, journal.Store{Dir: o.StateDir}) }
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: o.LogLevel}))
	klog.SetSlogLogger(log)
	return agent.Run(ctx, o, "rig", log)
}

// read finds each interface on the host or, by the journal, in a pod. One that is nowhere is not there, as with an HCA
// that has left the bus.
func read(names []string, store journal.Store) ([]survey.Device, error) {
	entries, err := store.List()
	holders := map[string]*journal.Entry{}
	for _, e := range entries {
		holders[e.DeviceKey] = e
	}
	var out []survey.Device
	for i, name := range names {
		a := device.Address{Bus: "netdev", Name: name}
		d := survey.Device{
			Location: device.Location{Address: a}, NameNow: fmt.Sprint("mlx5_", i), Netdev: name,
			AdminUp: true, NUMA: -1,
			RateGb: 200,
			HCA: device.HCA{
				Name: fmt.Sprint("mlx5_", i), Address: a,
				Ports: []device.Port{{Number: 1, State: device.PortActive, LinkLayer: device.Ethernet}},
			},
			Holder: holders[a.String()],
		}
		if i < len(files) {
			d.Files = files[i : i+1]
		}
		if _, err := net.InterfaceByName(name); err != nil {
			if d.Holder == nil {
				continue
			}
			d.Away = true
		}
		out = append(out, d)
	}
	return out, err
}
