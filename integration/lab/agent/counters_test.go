//go:build labguest

package agent

import (
	"fmt"
	"testing"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// counted is fabric_rdma_counter of each HCA: HCA, group and name to value. It fails the test if the HCA is not said to
// be in this container.
func counted(t *testing.T, in map[string]string) map[[3]string]float64 {
	t.Helper()
	out := map[[3]string]float64{}
	for _, f := range gathered(t) {
		if f.GetName() != "fabric_rdma_counter" {
			continue
		}
		for _, m := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			want := in[label["hca"]]
			if want != "" {
				want = "container " + want // the lab's pods have no names
			}
			if got := label["pod_name"]; got != want || label["pod_namespace"] != "" {
				t.Errorf("%s is in %q, want %q", label["hca"], got, want)
			}
			out[[3]string{label["hca"], label["group"], label["name"]}] = m.GetCounter().GetValue()
		}
	}
	return out
}

// What the ports of two pods have carried is in the agent's metrics, in words of four bytes, each under its own port
// and pod. The other rails have carried nothing.
func TestAgentCounters(t *testing.T) {
	n := guest.S1(t)
	guest.Unchanged(t)
	// The rails in datagram mode: fakeib's connected mode carries nothing.
	rails := []guest.Rail{n.Rails[0], n.Rails[2]}
	in := map[string]string{rails[0].HCA: "a", rails[1].HCA: "b"}
	var pods []*guest.Pod
	for i, name := range []string{"a", "b"} {
		pod := guest.NewPod(t, name)
		attach(pod, "ADD", rails[i].Netdev).Must(t)
		address := fmt.Sprintf("10.0.0.%d/24", i+1)
		if out, err := pod.Command("ip", "address", "add", address, "dev", "net1"); err != nil {
			t.Fatal(err, out)
		}
		pods = append(pods, pod)
	}
	ping := func(count int) {
		t.Helper()
		out, err := pods[0].Command("ping", "-n", "-c", fmt.Sprint(count), "-i", "0.01", "-s", "1000", "10.0.0.2")
		if err != nil {
			t.Fatal(err, out)
		}
	}
	guest.Until(t, "they reach each other", func() error {
		_, err := pods[0].Command("ping", "-n", "-c", "1", "-W", "1", "10.0.0.2")
		return err
	})
	const packets, payload = 50, 1000
	before := counted(t, in)
	ping(packets)
	after := counted(t, in)
	if len(after) == 0 {
		t.Fatal("no counters")
	}
	for _, r := range n.Rails {
		_, sends := in[r.HCA]
		for _, name := range []string{"xmit", "rcv"} {
			diff := func(what string) float64 {
				k := [3]string{r.HCA, "counters", "port_" + name + "_" + what}
				if _, there := after[k]; !there {
					t.Errorf("no counter %v", k)
				}
				return after[k] - before[k]
			}
			bytes, count := 4*diff("data"), diff("packets")
			t.Logf("%s %s: %v bytes, %v packets", r.HCA, name, bytes, count)
			switch {
			case !sends && bytes > packets*payload/4: // IPv6 neighbours
				t.Errorf("%s %s: %v bytes, and nobody has sent any there", r.HCA, name, bytes)
			case sends && (bytes < packets*payload || bytes > 2*packets*payload || count < packets):
				t.Errorf("%s %s: %v bytes in %v packets, want those of %d pings with %d bytes each",
					r.HCA, name, bytes, count, packets, payload)
			}
		}
	}
	for k := range after {
		if k[2] == "lifespan" {
			t.Errorf("%v counts nothing", k)
		}
	}
	for i, pod := range pods {
		attach(pod, "DEL", rails[i].Netdev).Must(t)
	}
}
