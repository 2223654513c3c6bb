package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shortly is how often the matrix looks: it has many cells.
const shortly = 50 * time.Millisecond

// matrix is the node with the pods of the fault matrix: one that keeps a rail all the time, and one after the other
// that gets the two others.
type matrix struct {
	t       *testing.T
	rig     *draRig
	alone   bool              // no Multus, and pods without an annotation
	holds   string            // directory of the points that are held
	seen    string            // directory in which containers write what they see
	peers   map[string]string // ifindex of a rail's other end -> rail, of all rails there have been
	actors  map[string]actor
	results []result
	mu      sync.Mutex // of peers

	// of the cell that runs
	pod     string
	held    string
	halted  *process
	outcome string
}

// result is what came of a cell.
type result struct {
	cell    *matrixCell
	ok      bool
	outcome string
	took    time.Duration
}

const steady = "steady" // the pod that keeps its rail

func newMatrix(t *testing.T, alone bool) *matrix {
	m := &matrix{t: t, alone: alone, holds: "/run/matrix/holds", seen: "/run/matrix/seen", peers: map[string]string{}}
	for _, dir := range []string{m.holds, m.seen} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if alone {
		rigWithoutMultus(t)
	}
	// The runtime passes it on to the plugin.
	t.Setenv("FABRIC_FAILPOINT_HOLD", m.holds)
	restart := func() {
		if err := errors.Join(current.containerd.kill(), current.startContainerd()); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	t.Cleanup(func() {
		_ = os.Unsetenv("FABRIC_FAILPOINT_HOLD")
		restart()
	})
	m.rig = newDRARig(t, current.run+"/bin/held", 3)
	m.actors = m.newActors()
	m.learn()
	m.keep()
	for name, count := range map[string]int{"one": 1, "two": 2} {
		apply(t, fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %s}
spec: {spec: {devices: {requests: [{name: rails, exactly: {deviceClassName: %s.fabric.dev, count: %d}}]}}}
`, name, rigFabric, count))
	}
	t.Cleanup(func() { removed(t, "resourceclaimtemplate", "one", "two") })
	m.create(t, steady, 1)
	t.Cleanup(func() { m.t.Helper(); gone(t, steady) })
	m.ready(t, steady, 1)
	return m
}

// keep brings home what the kernel would bring home if it were hardware, until the test ends.
func (m *matrix) keep() {
	end, done := make(chan struct{}), make(chan struct{})
	m.t.Cleanup(func() { close(end); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(shortly):
			}
			if n, err := m.rig.reviveRails(); n > 0 || err != nil {
				m.t.Logf("%d rails came home as their namespace went: %v", n, err)
				m.learn()
			}
		}
	}()
}

// learn notes which interface is whose other end.
func (m *matrix) learn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rig.rails {
		if b, err := os.ReadFile("/sys/class/net/" + r + "p/ifindex"); err == nil {
			m.peers[strings.TrimSpace(string(b))] = r
		}
	}
}

// looking is what a container does: it writes down what it reads of its devices, and what it has, at its start and
// whenever that changes.
const looking = `d=/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/rails/rails
echo "reads $(base64 -w 0 $d/fabric.dev-metadata.json)" >>/seen/$HOSTNAME
trap 'exit 0' TERM
o=
while :; do
  n="sees"
  for i in /sys/class/net/net*; do [ -e $i/iflink ] && read x <$i/iflink && n="$n ${i##*/}=$x"; done
  for f in fuse hwrng autofs; do [ -c /dev/$f ] && n="$n $f"; done
  [ "$n" = "$o" ] || { echo "$n" >>/seen/$HOSTNAME; o=$n; }
  sleep 0.2
done`

// create makes a pod with so many rails.
func (m *matrix) create(t *testing.T, name string, rails int) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(m.seen, name)); err != nil {
		t.Fatal(err)
	}
	template := map[int]string{1: "one", 2: "two"}[rails]
	grace, kind := int64(1), corev1.HostPathDirectory
	annotations := map[string]string{
		"k8s.v1.cni.cncf.io/networks": strings.TrimSuffix(strings.Repeat(rigFabric+",", rails), ","),
	}
	if m.alone {
		annotations = nil
	}
	_, err := clientset(t).CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "rails", ResourceClaimTemplateName: &template},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "localhost/box:e2e", ImagePullPolicy: corev1.PullNever,
				Command:      []string{"/bin/sh", "-c", looking},
				Resources:    corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "rails"}}},
				VolumeMounts: []corev1.VolumeMount{{Name: "seen", MountPath: "/seen"}},
			}},
			Volumes: []corev1.Volume{{Name: "seen", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: m.seen, Type: &kind},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *matrix) get(name string) (*corev1.Pod, error) { return podNow(m.t, name) }

func podNow(t testing.TB, name string) (*corev1.Pod, error) {
	t.Helper()
	return clientset(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
}

// podReady asserts, for poll, that a pod is Ready.
func podReady(t testing.TB, name string) func() error {
	t.Helper()
	return func() error {
		p, err := podNow(t, name)
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return textError(string(p.Status.Phase))
	}
}

// podGone asserts, for poll, that there is no such pod.
func podGone(t testing.TB, name string) func() error {
	t.Helper()
	return func() error {
		_, err := podNow(t, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = textError("it is there")
		}
		return err
	}
}

// claim returns that of a pod.
func (m *matrix) claim(name string) (*resourcev1.ResourceClaim, error) {
	p, err := m.get(name)
	if err != nil {
		return nil, err
	}
	if len(p.Status.ResourceClaimStatuses) != 1 || p.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
		return nil, textError("the pod has no claim yet")
	}
	return clientset(m.t).ResourceV1().ResourceClaims("default").Get(m.t.Context(),
		*p.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
}

// claimMade says that the pod's claim is there, and has nothing yet.
func (m *matrix) claimMade() error {
	c, err := m.claim(m.pod)
	if err == nil && c.Status.Allocation != nil {
		err = errors.New("the claim is allocated although the scheduler is stopped")
	}
	return err
}

// bound says that the scheduler has done its part.
func (m *matrix) bound() error {
	p, err := m.get(m.pod)
	if err == nil && p.Spec.NodeName == "" {
		err = textError("the pod has no node yet")
	}
	return err
}

// start makes the pod, in a cell or without one, and waits until it has its devices.
func (m *matrix) start(t *testing.T, name string, c *matrixCell) {
	began := time.Now()
	m.pod = name
	if c != nil {
		m.hold(t, c.gap)
	}
	m.create(t, name, 2)
	if c != nil {
		m.await(t, c.gap)
		m.strike(t, c)
	}
	m.ready(t, name, 2)
	m.outcome = fmt.Sprintf("Ready after %.1f s", time.Since(began).Seconds())
}

// ready waits until a pod is Ready, with exactly its devices by everybody's account.
func (m *matrix) ready(t *testing.T, name string, rails int) {
	t.Helper()
	if err := poll(name+" is Ready", time.Minute, shortly, podReady(t, name)); err != nil {
		out, _ := output("kubectl", "describe", "pod", name)
		t.Fatalf("%v\n%s", err, out)
	}
	if err := poll(name+" has exactly its devices", 20*time.Second, shortly, func() error {
		return m.hasExactly(name, rails)
	}); err != nil {
		t.Error(err)
	}
	m.alwaysHad(t, name, rails)
}

// runs says that a container of the pod has started.
func (m *matrix) runs() error {
	_, err := os.Stat(filepath.Join(m.seen, m.pod))
	return err
}

// end deletes the pod, in a cell or without one, and waits until everything is as it was.
func (m *matrix) end(t *testing.T, c *matrixCell) {
	began := time.Now()
	if c != nil && c.gap.point == "" {
		m.strike(t, c)
	}
	held := c != nil && c.gap.point != ""
	if held {
		m.hold(t, c.gap)
	}
	if err := poll("the API server deletes it", time.Minute, shortly, func() error {
		err := clientset(t).CoreV1().Pods("default").Delete(t.Context(), m.pod, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if held {
		m.await(t, c.gap)
		m.strike(t, c)
	}
	if err := poll(m.pod+" is gone", 90*time.Second, shortly, podGone(t, m.pod)); err != nil {
		out, _ := output("kubectl", "describe", "pod", m.pod)
		t.Fatalf("%v\n%s", err, out)
	}
	m.alwaysHad(t, m.pod, 2)
	if err := poll("everything is as it was", 30*time.Second, shortly, m.atRest); err != nil {
		t.Fatal(err)
	}
	m.alwaysHad(t, steady, 1)
	m.outcome = fmt.Sprintf("gone after %.1f s", time.Since(began).Seconds())
}

// clear is for what a cell that failed has left.
func (m *matrix) clear() {
	m.release()
	signalAll(unix.SIGCONT)
	if !m.alone {
		for from, to := range map[string]string{multusAway: multusBin, multusKept: multusFile} {
			if _, err := os.Stat(from); err == nil {
				_ = os.Rename(from, to)
			}
		}
		_ = os.Remove(bridgeFile)
	}
	_, _ = output("kubectl", "delete", "pod", m.pod, "--force", "--grace-period=0", "--ignore-not-found")
	_ = os.RemoveAll(filepath.Join(m.seen, m.pod))
	n := &nodeActor{m: m}
	n.kill(m.t, nil)
	n.restart(m.t)
	if err := poll("everything is as it was", time.Minute, shortly, m.atRest); err != nil {
		m.t.Fatalf("after a cell that failed: %v", err)
	}
}
