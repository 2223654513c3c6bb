package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var listAll metav1.ListOptions

// watching is what a container does: it says how many rails it has that are up, at first and whenever that changes.
const watching = `trap 'exit 0' TERM
o=; while :; do
n=$(ip -o link show up | grep -v -c -e ' lo:' -e ' eth0')
[ "$n" = "$o" ] || { echo "rails $n"; o=$n; }
sleep 0.3
done`

// draPod is a pod, and what its container said.
type draPod struct {
	name    string
	uid     string
	created time.Time
	seen    []sighting
}

type sighting struct {
	at    time.Time
	rails int
}

// ready is how long after the pod was created its container had all rails, 0 if it never did.
func (p *draPod) ready() float64 {
	for _, s := range p.seen {
		if s.rails == railsOfPod {
			return s.at.Sub(p.created).Seconds()
		}
	}
	return 0
}

// look reads what containers have said, from the files that the runtime writes.
func (p *draPod) look() {
	p.seen = nil
	files, _ := filepath.Glob("/var/log/pods/default_" + p.name + "_" + p.uid + "/c/*.log")
	slices.Sort(files)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			w := strings.Fields(line) // time stream tag "rails" number
			if len(w) != 5 || w[3] != "rails" {
				continue
			}
			at, err1 := time.Parse(time.RFC3339Nano, w[0])
			rails, err2 := strconv.Atoi(w[4])
			if err1 == nil && err2 == nil {
				p.seen = append(p.seen, sighting{at, rails})
			}
		}
	}
}

func (n *draStage) create(count int) []*draPod {
	n.b.Helper()
	pods := make([]*draPod, count)
	for i := range pods {
		p := &draPod{name: fmt.Sprintf("%s-%d-%d", n.s.name, n.round, i), created: time.Now()}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: p.name, Annotations: n.s.pod},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(1)),
				Containers: []corev1.Container{{
					Name: "c", Image: "localhost/box:e2e", ImagePullPolicy: corev1.PullNever,
					Command:   []string{"/bin/sh", "-c", watching},
					Resources: corev1.ResourceRequirements{Limits: n.s.limits},
				}},
			},
		}
		if n.s.limits == nil {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
				{Name: "rails", ResourceClaimTemplateName: new("rails")},
			}
			pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "rails"}}
		}
		o, err := clientset(n.b).CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{})
		must(n.b, err)
		p.uid = string(o.UID)
		pods[i] = p
	}
	return pods
}

// await waits until containers of all pods have started, or the limit is over.
func (n *draStage) await(pods []*draPod) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(soon) {
		if !slices.ContainsFunc(pods, func(p *draPod) bool { p.look(); return len(p.seen) == 0 }) {
			return
		}
	}
	for _, p := range pods {
		if p.look(); len(p.seen) == 0 {
			out, _ := output("kubectl", "get", "events", "--field-selector", "involvedObject.name="+p.name, "-o",
				`jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
			n.b.Logf("%s does not run:\n%s", p.name, lastLines(out, 4))
		}
	}
}

func (n *draStage) remove(pods []*draPod) {
	n.b.Helper()
	for _, p := range pods {
		must(n.b, clientset(n.b).CoreV1().Pods("default").Delete(context.Background(), p.name, metav1.DeleteOptions{}))
	}
	if err := poll("pods are gone", 2*time.Minute, soon, func() error {
		list, err := clientset(n.b).CoreV1().Pods("default").List(context.Background(), listAll)
		if err == nil && len(list.Items) > 0 {
			err = textError(list.Items[0].Name + " is there")
		}
		return err
	}); err != nil {
		n.b.Fatalf("%v\n%s", err, n.d.tail())
	}
}

// rails makes those that are missing, each one end of a veth, whose other end is in a namespace of its own.
func (n *draStage) rails() {
	n.b.Helper()
	_ = exec.Command("ip", "netns", "add", "switch").Run()
	var batch strings.Builder
	for i := range n.batch * railsOfPod {
		name := fmt.Sprint("rail", i)
		if _, err := net.InterfaceByName(name); err != nil {
			_ = exec.Command("ip", "-n", "switch", "link", "delete", name+"p").Run()
			fmt.Fprintf(&batch, "link add %s type veth peer name %sp netns switch\n", name, name)
		}
		fmt.Fprintf(&batch, "link set %s up\naddr replace %s dev %s\n", name, railAddress(i), name)
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(batch.String())
	out, err := ip.CombinedOutput()
	if err != nil {
		n.b.Fatalf("rails: %v: %s", err, out)
	}
	for i := range n.batch * railsOfPod {
		_ = exec.Command("ip", "-n", "switch", "link", "set", fmt.Sprintf("rail%dp", i), "up").Run()
	}
}

func railAddress(i int) string { return fmt.Sprintf("10.201.%d.%d/24", i%railsOfPod, 1+i/railsOfPod) }

func (n *draStage) noRails() { _ = exec.Command("ip", "netns", "delete", "switch").Run() }

// inventory is what the node lacks, and what it has otherwise than before, once that has not changed for a while.
func (n *draStage) inventory() (lost []string, changed int) {
	began := time.Now()
	for ; time.Since(began) < n.s.patience; time.Sleep(soon) {
		lost, changed = nil, 0
		for i := range n.batch * railsOfPod {
			name := fmt.Sprint("rail", i)
			link, err := net.InterfaceByName(name)
			if err != nil {
				lost = append(lost, name)
				continue
			}
			addrs, _ := link.Addrs()
			if link.Flags&net.FlagUp == 0 || !slices.ContainsFunc(addrs, func(a net.Addr) bool {
				return a.String() == railAddress(i)
			}) {
				changed++
			}
		}
		if len(lost) == 0 && (changed == 0 || time.Since(began) > 2*time.Second) {
			break
		}
	}
	return lost, changed
}
