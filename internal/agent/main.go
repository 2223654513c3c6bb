// Package agent is the program fabric-agent: its commands, and the reconciler, which brings kubelet, Multus and the
// cluster in line with the Fabrics and the node. reconciler.go has the order of the work; each part of it is a file.
package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/podresources"
	"github.com/fabric-cni/fabric-cni/internal/agent/server"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/logs"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Options are the options of the command line. Paths are those in the agent's container, where the DaemonSet mounts
// the node's directories at the same places.
type Options struct {
	Source     string // the CNI binary in the image
	BinDir     string
	StateDir   string
	Policy     string
	ConfDir    string // Multus's
	DeviceDir  string // kubelet's device plugins
	InfoDir    string // device-info files
	PluginsDir string // kubelet's plugins
	CDIDir     string // CDI specs
	HostProc   string
	CRISocket  string // on the host
	PodSocket  string // kubelet's, with what it has given to whom; on the host
	Node       string
	NodeIPs    string
	Kubeconfig string
	NoCluster  bool
	Health     string // unix:PATH or host:port,...; empty: no probes
	Interval   time.Duration
	Grace      time.Duration
	LogLevel   slog.Level
	Force      bool
	Stay       bool

	Metrics        string // host:port,...; empty: no metrics
	MetricsSecure  bool   // TLS, and a token that the API server accepts
	MetricsCertDir string // with tls.crt and tls.key; empty: self-signed

	nodeIPs  []netip.Addr
	flagged  map[string]bool // flags that the command line has
	counters countersOf

	// Survey reads the node's devices. Nil: from the kernel.
	Survey func() ([]survey.Device, error)
	// Mode is the node's RDMA network namespace mode. Nil: from the kernel.
	Mode func() (device.NetnsMode, error)
	// WriteEvery is how often the FabricNode is written at most. 0: as often as many agents may.
	WriteEvery time.Duration
}

const usage = `usage: fabric-agent COMMAND [flag...]

  install     copy the CNI binary to --bin-dir, atomically, if it is not there yet
  run         on each node: keep it installed, offer devices, reclaim them, export metrics; until SIGTERM
  controller  once in the cluster: publish networks, give nodes their ranges, sum up; until SIGTERM
  crds        once before an upgrade: bring the CRDs in line with this version
  release     once before it is uninstalled: have all nodes uninstall it, withdraw networks, drop finalizers
  health      exit with 0 while the agent answers at the first --health-address: for kubelet, in the same container
  ready       the same while it is ready
  uninstall   remove all of it from this node; refused while pods have devices, unless --force is given
  version     print the version

fabric-agent COMMAND -h lists the flags.
`

// ErrUsage means that the command line is wrong.
var ErrUsage = errors.New("bad command line")

// Main runs one command.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return fmt.Errorf("%w: no command", ErrUsage)
	}
	o, err := Parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	log := logs.New(stderr, o.LogLevel)
	switch args[0] {
	case "install":
		changed, err := o.install()
		if err == nil {
			log.Info("installed", "path", o.target().Path(), "changed", changed, "version", version)
		}
		return err
	case "uninstall":
		if o.Stay {
			return o.stay(ctx, version, log)
		}
		return o.uninstall(ctx, log)
	case "run":
		return Run(ctx, o, version, log)
	case "health", "ready":
		address, _, _ := strings.Cut(o.Health, ",")
		return server.Ask(ctx, address, map[string]string{"health": "/healthz", "ready": "/readyz"}[args[0]])
	case "version":
		fmt.Fprintln(stdout, version)
		return nil
	}
	fmt.Fprint(stderr, usage)
	return fmt.Errorf("%w: unknown command %q", ErrUsage, args[0])
}

// Parse reads a command with its flags. The error is flag.ErrHelp when they were only asked for.
func Parse(args []string, stderr io.Writer) (*Options, error) {
	o := &Options{}
	f := flag.NewFlagSet("fabric-agent "+args[0], flag.ContinueOnError)
	f.SetOutput(stderr)
	o.flags(f)
	if err := f.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	o.flagged = map[string]bool{}
	f.Visit(func(f *flag.Flag) { o.flagged[f.Name] = true })
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%w: unexpected argument %q", ErrUsage, f.Arg(0))
	}
	if args[0] == "run" && o.Node == "" && !o.NoCluster {
		return nil, fmt.Errorf("%w: --node-name is missing", ErrUsage)
	}
	var err error
	if o.nodeIPs, err = parseAddresses(o.NodeIPs); err != nil {
		return nil, fmt.Errorf("%w: --node-ips: %w", ErrUsage, err)
	}
	if o.MetricsSecure && o.NoCluster {
		return nil, fmt.Errorf("%w: --metrics-secure asks the API server, which --no-cluster forbids", ErrUsage)
	}
	if o.MetricsCertDir != "" && !o.MetricsSecure {
		return nil, fmt.Errorf("%w: --metrics-cert-dir is of no use without --metrics-secure", ErrUsage)
	}
	return o, nil
}

func (o *Options) flags(f *flag.FlagSet) {
	f.StringVar(&o.Source, "source", "/usr/bin/fabric", "the CNI `binary` to install")
	f.StringVar(&o.BinDir, "bin-dir", "/opt/cni/bin", "the container runtime's plugin `directory`")
	f.StringVar(&o.StateDir, "state-dir", journal.DefaultDir, "the plugin's state `directory`")
	f.StringVar(&o.Policy, "policy", policy.DefaultPath, "`file` with the node policy")
	f.StringVar(&o.ConfDir, "conf-dir", "/etc/cni/multus/net.d",
		"Multus's `directory` for network configurations of this node; empty: write none")
	f.StringVar(&o.DeviceDir, "device-plugin-dir", "/var/lib/kubelet/device-plugins",
		"kubelet's `directory` for device plugins; empty: no device plugin")
	f.StringVar(&o.InfoDir, "device-info-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
		"`directory` for device-info files; empty: write none")
	f.StringVar(&o.PluginsDir, "kubelet-plugins-dir", "/var/lib/kubelet/plugins",
		"kubelet's `directory` for plugins, for Fabrics with allocation DRA: that of their registrations is beside "+
			"it; empty: no DRA")
	f.StringVar(&o.CDIDir, "cdi-dir", "/var/run/cdi",
		"the container runtime's `directory` for CDI specs of ResourceClaims")
	f.StringVar(&o.HostProc, "host-proc", "",
		"`directory` where the host's /proc is mounted, if the agent runs in a container: shows the processes of "+
			"pods, and is the way to the host's files")
	f.StringVar(&o.CRISocket, "cri-socket", "",
		"the container runtime's `socket` on the host; empty: the first that exists of containerd, CRI-O, k3s and RKE2")
	f.StringVar(&o.PodSocket, "pod-resources-socket", podresources.Socket,
		"kubelet's `socket` on the host that tells which GPUs a pod has; empty: devices are chosen without that")
	f.StringVar(&o.Node, "node-name", "", "`name` of the Node")
	f.StringVar(&o.NodeIPs, "node-ips", "",
		"`addresses` of the Node, with commas: an interface that has one is not moved")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	f.BoolVar(&o.NoCluster, "no-cluster", false,
		"do not connect to an API server: the last fabrics that it told of stay in force")
	f.StringVar(&o.Health, "health-address", "unix:/run/fabric-agent/own/health.sock",
		"unix:`path` of a socket, or host:port, or several with commas, of /healthz and /readyz; empty: none")
	f.StringVar(&o.Metrics, "metrics-address", "127.0.0.1:9467",
		"`host:port`, or several with commas, of /metrics; empty: none")
	f.BoolVar(&o.MetricsSecure, "metrics-secure", false,
		"/metrics over TLS, and only with the bearer token of a user who may get it: asks the API server")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "",
		"`directory` with tls.crt and tls.key for --metrics-secure, read again when they change; empty: self-signed")
	f.DurationVar(&o.Interval, "interval", 10*time.Second, "time between two looks at the node")
	f.DurationVar(&o.Grace, "grace", time.Minute, "how long a pod must be dead before its devices are reclaimed")
	f.TextVar(&o.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.BoolVar(&o.Force, "force", false, "uninstall although pods have devices")
	f.BoolVar(&o.Stay, "stay", false,
		"uninstall, again and again until it is done, and then do nothing: in place of run, until SIGTERM")
}

func (o *Options) store() journal.Store { return journal.Store{Dir: o.StateDir} }

// ipamDir is where host-local records the addresses that it has given of this node's ranges. A reboot ends all pods,
// and empties it.
func (o *Options) ipamDir() string { return filepath.Join(o.StateDir, policy.IPAMDir) }

func (o *Options) target() install.Target {
	return install.Target{Source: o.Source, BinDir: o.BinDir, Store: o.store()}
}
