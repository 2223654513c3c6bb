package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	reviews "github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/server"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Options are the options of the command line.
type Options struct {
	Kubeconfig string
	Namespace  string // of the lease and of the agents
	Agents     string // their DaemonSet
	Metrics    string
	Secure     bool // /metrics
	Health     string
	LogLevel   slog.Level

	NodeCondition bool
	Taint         string
	NodeLabels    bool
}

// Flags adds the options to a set of flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	f.StringVar(&o.Namespace, "namespace", "fabric-system", "`namespace` of the lease")
	f.StringVar(&o.Agents, "agents", "",
		"`name` of the agents' DaemonSet: a fresh range waits until as many nodes have said what their pods hold as "+
			"it has pods; empty: it waits for none")
	f.StringVar(&o.Metrics, "metrics-address", "0", "`host:port` of /metrics; 0: none")
	f.BoolVar(&o.Secure, "metrics-secure", false,
		"/metrics over TLS, and only with the bearer token of a user who may get it: asks the API server")
	f.StringVar(&o.Health, "health-address", ":9469", "`host:port` of /healthz and /readyz")
	f.BoolVar(&o.NodeCondition, "node-condition", false,
		"set the condition FabricHealthy of Nodes by what their agents say of their devices")
	f.StringVar(&o.Taint, "taint", "",
		"taint Nodes with an unhealthy device: `key:effect`, as in fabric.dev/unhealthy:NoSchedule; empty: none")
	f.BoolVar(&o.NodeLabels, "node-labels", false,
		"label Nodes with what they have of each Fabric: fabric.dev/NAME.devices and .rate, and fabric.dev/rdma-mode")
	f.TextVar(&o.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

// leaseName is the name of the lease.
const leaseName = "fabric-controller"

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// between is how much time there is at least between two rounds: what comes meanwhile is done together.
const between = time.Second

// lease knows when the lease was last renewed.
type lease struct {
	resourcelock.Interface

	renewed atomic.Int64 // of time since start, which no clock sets back
	start   time.Time
	first   atomic.Bool  // no replica had it before
	others  atomic.Int64 // when another one last renewed it, by that one's clock, in ns since 1970; 0: never
	paused  atomic.Int64 // time between that and this leader's first renewal
}

// Get notes when another one has renewed it.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil && r.HolderIdentity != l.Identity() && !r.RenewTime.IsZero() {
		l.others.Store(r.RenewTime.UnixNano())
	}
	return r, raw, err
}

// now is the time by a clock that is not set while this process runs.
func (l *lease) now() time.Time { return l.start.Add(time.Since(l.start)) }

// Create is called by the leader election, as Update is.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.note(ctx, l.Interface.Create, r)
	if err == nil {
		l.first.Store(true)
	}
	return err
}

// Update notes when the lease was renewed.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(ctx, l.Interface.Update, r)
}

func (l *lease) note(
	ctx context.Context, f func(context.Context, resourcelock.LeaderElectionRecord) error,
	r resourcelock.LeaderElectionRecord,
) error {
	began := time.Since(l.start)
	err := f(ctx, r)
	if err == nil && r.HolderIdentity == l.Identity() {
		if last := l.others.Load(); last != 0 && l.renewed.Load() == 0 {
			l.paused.Store(max(0, l.now().UnixNano()-last))
		}
		l.renewed.Store(int64(began))
	}
	return err
}

// fresh reports whether no other controller can have the lease.
func (l *lease) fresh() bool {
	return time.Since(l.start)-time.Duration(l.renewed.Load()) < renewDeadline
}

// Scheme has the kinds that the controller knows.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s), v1alpha1.AddToScheme(s))
}

// memoryLimit is where the garbage collector begins to work harder, in bytes. With 5,000 nodes 80 MB are in use; what a
// leader lists when it begins is several times that for a moment.
const memoryLimit = 200 << 20

// Main works until ctx ends or the lease is lost.
func Main(ctx context.Context, o *Options, version string, log *slog.Logger) error {
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	rc, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	rc.QPS, rc.Burst = 200, 400
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(memoryLimit)
	}
	return Run(ctx, rc, o, version, log)
}

// Run is Main with another way to the API server.
func Run(ctx context.Context, rc *rest.Config, o *Options, version string, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	taint, err := ParseTaint(o.Taint)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := fmt.Sprintf("%s_%d", host, time.Now().UnixNano())
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: identity}, rc, renewDeadline)
	if err != nil {
		return fmt.Errorf("make the lease: %w", err)
	}
	l := &lease{Interface: lock, start: time.Now()}
	m, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme:                              scheme,
		Logger:                              logr.FromSlogHandler(log.Handler()),
		LeaderElection:                      true,
		LeaderElectionID:                    leaseName, // the label of leader_election_master_status
		LeaderElectionResourceLockInterface: l,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       ptr(leaseDuration),
		RenewDeadline:                       ptr(renewDeadline),
		RetryPeriod:                         ptr(retryPeriod),
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // serveMetrics has limits
		HealthProbeBindAddress:              "0",                                     // and so has serveHealth
		Cache:                               cache.Options{ByObject: slim()},
		Controller: config.Controller{
			MaxConcurrentReconciles: 1, SkipNameValidation: ptr(true),
		},
	})
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	events, stop, err := recorder(rc, scheme)
	if err != nil {
		return err
	}
	defer stop()
	c := &Controller{
		Client: m.GetClient(),
		Ranges: NewRanges(m.GetClient(), m.GetAPIReader(), identity, l.fresh, log),
		Events: events,
		Marks:  Marks{Condition: o.NodeCondition, Taint: taint},
		Labels: o.NodeLabels,
		Now:    l.now,
		Log:    log,
	}
	c.Ranges.Now = l.now
	c.Ranges.Paused = func() time.Duration { return time.Duration(l.paused.Load()) }
	c.Ranges.First, c.Ranges.Agents = l.first.Load, AgentsOf(m.GetAPIReader(), o.Namespace, o.Agents)
	err = errors.Join(c.setup(m), o.serveHealth(ctx, m, log), o.serveMetrics(ctx, m, log))
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	if err := metrics.Registry.Register(&c.shown); err == nil { // a test has several
		defer metrics.Registry.Unregister(&c.shown)
	}
	log.Info("running", "version", version, "identity", identity)
	return m.Start(ctx)
}

// serveHealth answers probes, also while another replica has the lease. Each pod of the cluster can reach the port.
func (o *Options) serveHealth(ctx context.Context, m ctrl.Manager, log *slog.Logger) error {
	if o.Health == "" || o.Health == "0" {
		return nil
	}
	e, err := server.Listen(ctx, server.Config{
		Name: "probes", Addresses: []string{o.Health}, Limits: server.Default, Log: log,
		Handler: server.Health(func() bool { return true }),
	})
	if err != nil {
		return err
	}
	return m.Add(always(e.Serve))
}

// always is what runs in each controller, whether it leads or not.
type always func(context.Context) error

// Start is called by the manager.
func (f always) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection is asked by the manager.
func (f always) NeedLeaderElection() bool { return false }

// recorder writes Events of the core API, as agents do: those of controller-runtime that are not deprecated are of
// another group, with permissions of its own. stop ends it.
func recorder(rc *rest.Config, scheme *runtime.Scheme) (r record.EventRecorder, stop func(), err error) {
	core, err := typedcorev1.NewForConfig(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("make API client: %w", err)
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	return b.NewRecorder(scheme, corev1.EventSource{Component: "fabric-controller"}), b.Shutdown, nil
}

// serveMetrics answers Prometheus as the agent does, with the same limits. controller-runtime's server has none, and
// its filter brings an API server's code and an exporter of traces into the binary.
func (o *Options) serveMetrics(ctx context.Context, m ctrl.Manager, log *slog.Logger) error {
	if o.Metrics == "" || o.Metrics == "0" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	c := server.Config{
		Name: "Prometheus", Addresses: []string{o.Metrics}, Limits: server.Default, Log: log,
		Handler: server.Limited(server.AtOnce, mux),
	}
	if o.Secure {
		r, err := reviews.NewReviewer(m.GetConfig())
		if err != nil {
			return err
		}
		if c.TLS, err = server.TLS("", c.Addresses, log); err != nil {
			return err
		}
		c.Handler = server.Authorized(r.MayReadMetrics, log, c.Handler)
	}
	e, err := server.Listen(ctx, c)
	if err != nil {
		return err
	}
	return m.Add(always(e.Serve))
}

func ptr[T any](v T) *T { return &v }

// slim leaves out of the cache what no round looks at: most of an inventory, who wrote which field.
func slim() map[client.Object]cache.ByObject {
	bare := func(o any) (any, error) {
		if m, ok := o.(metav1.Object); ok {
			m.SetManagedFields(nil)
		}
		return o, nil
	}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return map[client.Object]cache.ByObject{
		&v1alpha1.Fabric{}: {Transform: bare},
		&v1alpha1.FabricNode{}: {Transform: func(o any) (any, error) {
			if n, ok := o.(*v1alpha1.FabricNode); ok {
				n.Status.Inventory = nil
			}
			return bare(o)
		}},
		node: {Transform: func(o any) (any, error) {
			if m, ok := o.(*metav1.PartialObjectMetadata); ok {
				m.SetAnnotations(nil)
			}
			return bare(o)
		}},
		&corev1.Namespace{}: {Transform: bare},
	}
}

// setup makes a round of whatever changes.
func (c *Controller) setup(m ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	var last time.Time
	round := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		select { // not by RequeueAfter: that would make a round that fails again and again look like the first
		case <-time.After(between - time.Since(last)):
		case <-ctx.Done():
			return reconcile.Result{}, nil
		}
		last = time.Now()
		next, err := c.Round(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: next}, nil
	})
	seldom := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](between, missingEvery)
	return ctrl.NewControllerManagedBy(m).Named("fabrics").
		WithOptions(runtimecontroller.Options{RateLimiter: seldom}).
		Watches(&v1alpha1.Fabric{}, all).Watches(&v1alpha1.FabricNode{}, all).
		Watches(&corev1.Namespace{}, all).WatchesMetadata(node, all).
		Complete(round)
}
