package cluster

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const railsByClaim = 8

// way is how the devices of a claim get into a pod.
type way struct {
	name        string
	template    string
	annotation  string
	begin       func() error // before pods of this way, and end after them; nil: nothing
	end         func() error
	each        func() error // before each pod; nil: nothing
	start, stop []time.Duration
}

// BenchmarkClaims starts and deletes pods with eight rails each by a claim, one after the other, and says how long it
// takes until they are Ready and until they are gone: FABRIC_E2E_PODS of each way, 32 if it is not set, in turns of
// eight. The ways are Multus, with an annotation, and nothing beside the claim. With FABRIC_BENCH_DRANET=FILE the
// driver dranet has its turns on rails of its own.
func BenchmarkClaims(b *testing.B) {
	pods := 32
	if s := os.Getenv("FABRIC_E2E_PODS"); s != "" {
		var err error
		pods, err = strconv.Atoi(s)
		must(b, err)
	}
	newDRARig(b, current.run+"/bin/held", railsByClaim)
	ways := []*way{
		{name: "Multus", template: "ours", annotation: strings.Repeat(rigFabric+",", railsByClaim-1) + rigFabric},
		{name: "claim alone", template: "ours", begin: takeMultus, end: bringMultus},
	}
	must(b, current.apply(claimTemplate("ours", rigFabric+".fabric.dev")))
	if file := os.Getenv("FABRIC_BENCH_DRANET"); file != "" {
		ways = append(ways, dranet(b, file))
	}
	for b.Loop() {
		for range (pods + 7) / 8 {
			for _, w := range ways {
				w.turn(b, 8)
			}
		}
	}
	for _, w := range ways {
		slices.Sort(w.start)
		slices.Sort(w.stop)
		name := strings.ReplaceAll(w.name, " ", "-")
		b.ReportMetric(w.start[len(w.start)/2].Seconds(), name+"-start-s")
		b.ReportMetric(w.stop[len(w.stop)/2].Seconds(), name+"-end-s")
		b.Logf("%s: %d pods, Ready after p50 %v p90 %v, gone after p50 %v p90 %v", w.name, len(w.start),
			w.start[len(w.start)/2], w.start[len(w.start)*9/10], w.stop[len(w.stop)/2], w.stop[len(w.stop)*9/10])
	}
}

func claimTemplate(name, class string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %s}
spec: {spec: {devices: {requests: [{name: rails, exactly: {deviceClassName: %s, count: %d}}]}}}
`, name, class, railsByClaim)
}

func (w *way) turn(b *testing.B, pods int) {
	b.Helper()
	if w.begin != nil {
		must(b, w.begin())
		defer func() { must(b, w.end()) }()
	}
	for range pods {
		if w.each != nil {
			must(b, w.each())
		}
		began := time.Now()
		w.create(b)
		must(b, poll("the pod is Ready", time.Minute, 10*time.Millisecond, podReady(b, "bench")))
		w.start = append(w.start, time.Since(began))
		if out, err := output("kubectl", "exec", "bench", "--", "sh", "-c", "ls /sys/class/net | wc -l"); err != nil ||
			strings.TrimSpace(out) != fmt.Sprint(railsByClaim+2) {
			b.Fatalf("%s: interfaces: %s, %v", w.name, out, err)
		}
		began = time.Now()
		must(b, clientset(b).CoreV1().Pods("default").Delete(b.Context(), "bench", metav1.DeleteOptions{}))
		must(b, poll("the pod is gone", time.Minute, 10*time.Millisecond, podGone(b, "bench")))
		w.stop = append(w.stop, time.Since(began))
	}
}

func (w *way) create(b *testing.B) {
	b.Helper()
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "rails", ResourceClaimTemplateName: &w.template},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "localhost/box:e2e", ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "rails"}}},
			}},
		},
	}
	if w.annotation != "" {
		p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": w.annotation}
	}
	_, err := clientset(b).CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{})
	must(b, err)
}

// dranet is the driver of kubernetes-sigs, with rails of its own. It loses veths with each pod: they are made again.
func dranet(b *testing.B, file string) *way {
	b.Helper()
	own := &draRig{}
	for i := range railsByClaim {
		own.rails = append(own.rails, fmt.Sprint("dnet", i))
	}
	must(b, own.makeRails())
	_, err := current.process(file, "--v=4", "--hostname-override=rig", "--kubeconfig="+current.run+
		"/conf/admin.kubeconfig", "--bind-address=127.0.0.1:9177", "--cloud-provider-hint=NONE",
		`--filter="dra.net/ifName" in attributes && attributes["dra.net/ifName"].StringValue.startsWith("dnet")`)
	must(b, err)
	must(b, current.apply(`apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.net}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]}
---
`+claimTemplate("theirs", "dra.net")))
	return &way{name: "dranet", template: "theirs", begin: takeMultus, end: bringMultus, each: own.makeRails}
}
