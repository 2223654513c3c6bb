// Package dra is the node's side of Dynamic Resource Allocation: a driver of kubelet that offers the devices of fabrics
// with allocation DRA in ResourceSlices, prepares the claims that the scheduler has given devices to, and says in their
// status what became of them. The plugin's ADD attaches what is prepared here, called by Multus or by the hook of the
// pod's containers.
//
// driver.go starts and stops it, publish.go offers, prepare.go and unprepare.go answer kubelet, watch.go follows the
// journal, sweep.go removes abandoned claims.
package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/cdi"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// Config is what the driver works with.
type Config struct {
	Node       string // name of the Node, and of its pool
	PluginsDir string // kubelet's: /var/lib/kubelet/plugins; that of the registrations is beside it
	Store      journal.Store
	Prepared   prepared.Store
	CDI        *cdi.Dir
	Kube       kubernetes.Interface
	// Preflight says of devices that pods are to get why their ADD would be refused now; nil for those that could work.
	Preflight func([]fabric.PreflightRequest) ([]error, error)
	// Files returns the device files of a device at this moment. One that is to go into a pod (alone) is awaited: on
	// the host, with as many files as before (was).
	Files func(ctx context.Context, a device.Address, alone bool, was []string) ([]string, error)
	// Interface reads the interface of an attachment in its pod.
	Interface func(*journal.Entry) (*survey.Interface, error)
	// Detach returns what the hook of a container has attached, as a runtime would by DEL.
	Detach func(context.Context, *journal.Entry) error
	// Given asks kubelet which devices of its device plugins pods have; nil: this is not known.
	Given   func(context.Context) ([]Unit, error)
	Observe func(time.Duration, Reason) // one claim has been prepared, or not; may be nil
	Log     *slog.Logger
	Now     func() time.Time
}

// Device is a device of a fabric with allocation DRA.
type Device struct {
	Item    offer.Item
	Files   []string
	Extra   []string // kinds of device files that its Fabric allows beside what verbs need
	Moving  bool     // on its way into a pod or back: what it says of itself is not to be relied on
	InPod   bool     // what it says of itself may be its pod's doing
	Conf    []byte   // configuration of its network on this node
	ConfErr error    // why Conf is missing
	Health  string   // what is wrong with it, whether pods may get it or not; empty: nothing
}

// View is what a look at the node has found.
type View struct {
	Known     bool                     // the API server has said which Fabrics there are
	Fabrics   map[string]bool          // those with allocation DRA
	Devices   []Device                 // of these fabrics
	Elsewhere map[device.Location]bool // the devices of other fabrics, which kubelet's device plugin has
	Rails     map[string]int           // by fabric: the rail that all its devices are on
}

// Driver is the DRA driver of a node. It is idle until a View wants it.
type Driver struct { //nolint:methods // kubelet's calls and the steps of each
	Config
	poke chan struct{}

	mu        sync.Mutex
	view      View
	devices   map[string]*Device       // by name in the slice
	missing   map[device.Location]bool // devices that the last look did not find
	form      offer.Form
	refused   []offer.Refused
	problem   string            // why there is no allocation
	failed    time.Time         // when something last failed in the background
	preparing map[string]string // device -> claim, while it is being prepared
	sickness  chan struct{}     // closed when the health of a device changes

	claims keyed // one prepare or unprepare of a claim at a time

	helper    *kubeletplugin.Helper
	published publisher
}

// New returns a driver that has not started.
func New(c Config) *Driver {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Driver{
		Config: c, poke: make(chan struct{}, 1), devices: map[string]*Device{}, preparing: map[string]string{},
		sickness: make(chan struct{}), published: publisher{since: map[string]time.Time{}},
	}
}

// dir is the driver's own directory in kubelet's. It stays when the last fabric with allocation DRA is gone: kubelet
// still asks the driver to take back what it has prepared.
func (d *Driver) dir() string { return filepath.Join(d.PluginsDir, fabrics.Driver) }

// registry is where kubelet looks for the sockets of plugins.
func (d *Driver) registry() string { return d.PluginsDir + "_registry" }

// before reports whether there has been a driver on this node.
func (d *Driver) before() bool {
	_, err := os.Stat(d.dir())
	return err == nil
}

// Run works until ctx ends. Without a driver there is nothing to do.
func (d *Driver) Run(ctx context.Context) {
	if d == nil {
		return
	}
	defer func() { d.helper.Stop() }()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-d.poke:
		case <-tick.C:
		}
		if !d.wanted() {
			continue
		}
		started := d.helper != nil
		if err := d.start(ctx); err != nil {
			d.fail("%v", err)
			continue
		}
		if !started {
			wg.Go(func() { d.watch(ctx) })
			wg.Go(func() { d.sweepLoop(ctx) })
		}
		d.publish(ctx)
	}
}

// retryEvery is how often the driver tries again what did not work, and looks whether it has to.
const retryEvery = 10 * time.Second

// wanted tells whether there is something to do: a fabric has allocation DRA, or one has had it, and kubelet may want
// claims to be taken back. Before anybody has said which Fabrics there are, a slice without devices would be wrong.
func (d *Driver) wanted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.view.Fabrics) > 0 || d.view.Known && (d.helper != nil || d.before())
}

// fail notes why claims can't be served; with an empty text that they can.
func (d *Driver) fail(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := ""
	if format != "" {
		text = fmt.Sprintf(format, args...)
	}
	if text != "" && text != d.problem {
		d.Log.Error("cannot allocate by ResourceClaims", "error", text)
	}
	d.problem = text
}

// errNotServed means that the cluster is older than 1.34, or has the API switched off.
var errNotServed = errors.New("the API server does not serve resource.k8s.io/v1 (Kubernetes 1.34 or later): pods get " +
	"no device of a Fabric with allocation DRA; use allocation DevicePlugin")

// served asks for the API once, before the driver registers.
func (d *Driver) served() error {
	_, err := d.Kube.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1")
	if isNotFound(err) {
		return errNotServed
	}
	if err != nil {
		return fmt.Errorf("ask whether the API server serves resource.k8s.io/v1: %w", err)
	}
	return nil
}

// Keys of what the API server knows of a token that is bound to a pod: the constants NodeNameKey and NodeUIDKey of
// k8s.io/apiserver/pkg/authentication/serviceaccount, a package of an API server.
const (
	tokenNodeName = "authentication.kubernetes.io/node-name"
	tokenNodeUID  = "authentication.kubernetes.io/node-uid"
)

// nodeUID is the Node that owns the slices, from the agent's own token: it may read no Node. Empty: the token has none,
// as that of an administrator, and the library asks for the Node.
func (d *Driver) nodeUID(ctx context.Context) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	me, err := d.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask which Node the agent's token is of: %w", err)
	}
	extra := me.Status.UserInfo.Extra
	name, uid := extra[tokenNodeName], extra[tokenNodeUID]
	if len(name) == 1 && len(uid) == 1 && name[0] == d.Node {
		return types.UID(uid[0]), nil
	}
	return "", nil
}

// start serves kubelet, if it does not yet.
func (d *Driver) start(ctx context.Context) error {
	if d.helper != nil {
		return nil
	}
	if err := d.served(); err != nil {
		return err
	}
	uid, err := d.nodeUID(ctx)
	if err != nil {
		return err
	}
	if err := d.reconcileFiles(); err != nil {
		d.Log.Error("what an earlier agent has prepared", "error", err)
	}
	for _, dir := range []string{d.dir(), d.registry()} {
		if err := os.MkdirAll(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make kubelet's plugin directory: %w", err)
		}
	}
	// No RollingUpdate: the agent uses ports of the node, so that an old and a new one never run side by side. Sockets
	// with the pod's UID would outlive an agent that is killed. What is prepared is on disk: the new agent goes on with
	// it, and kubelet asks again for what the gap has made fail.
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(fabrics.Driver), kubeletplugin.KubeClient(d.Kube), kubeletplugin.NodeName(d.Node),
		kubeletplugin.NodeUID(uid),
		kubeletplugin.PluginDataDirectoryPath(d.dir()), kubeletplugin.RegistrarDirectoryPath(d.registry()),
		kubeletplugin.Serialize(false), // a device on its way home must not hold up other pods
	)
	if err != nil {
		return fmt.Errorf("start the DRA driver %s: %w", fabrics.Driver, err)
	}
	d.helper = helper
	d.Log.Info("DRA driver registers with kubelet", "driver", fabrics.Driver, "directory", d.dir())
	return nil
}

// Problems are why claims can't be served, and which devices can't be offered: for conditions.
func (d *Driver) Problems() (problem string, refused []offer.Refused) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problem, d.refused
}

// keyed is a lock for each key.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*entry
}

type entry struct {
	sync.Mutex
	users int
}

// lock locks a key, and returns what unlocks it.
func (k *keyed) lock(key string) func() {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*entry{}
	}
	e := k.locks[key]
	if e == nil {
		e = &entry{}
		k.locks[key] = e
	}
	e.users++
	k.mu.Unlock()
	e.Lock()
	return func() {
		e.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if e.users--; e.users == 0 {
			delete(k.locks, key)
		}
	}
}
