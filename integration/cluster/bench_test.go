package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// timed is a CNI plugin that runs another and notes how long it took.
const timed = `#!/bin/sh
began=$(date +%s%N)
"$0.real"
status=$?
echo "$CNI_COMMAND $status $(($(date +%s%N) - began))" >>/run/timed.log
exit $status
`

const railsPerPod = 4

// BenchmarkPods attaches and detaches pods with four rails each, all at once, through Multus: FABRIC_E2E_PODS of them,
// 32 if it is not set. The time of one interface is that of its ADD or DEL, IPAM included: whereabouts, or host-local
// on the node's own range.
func BenchmarkPods(b *testing.B) {
	pods := 32
	if s := os.Getenv("FABRIC_E2E_PODS"); s != "" {
		var err error
		if pods, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, plugin string
		ipam         func(*testing.B) string
	}{
		{"fabric", "fabric", byWhereabouts},
		{"host-device", "host-device", byWhereabouts},
		{"fabric-noderange", "fabric", byNodeRange},
	} {
		b.Run(fmt.Sprintf("%s/pods=%d", c.name, pods), func(b *testing.B) {
			for range b.N {
				benchPods(b, c.plugin, c.ipam(b), pods)
			}
		})
	}
}

func byWhereabouts(*testing.B) string { return `{"type":"whereabouts","range":"10.200.0.0/16"}` }

// partDir is where host-local keeps the addresses of the node's range.
const partDir = "/var/lib/cni/networks"

// byNodeRange is what the agent writes for a node that has a range of its own.
func byNodeRange(b *testing.B) string {
	b.Helper()
	o := &v1alpha1.Fabric{}
	must(b, yaml.UnmarshalStrict([]byte(testfabrics.Object("bench",
		"{addresses: {nodeRanges: {ranges: [{range: 10.200.0.0/16, perNodePrefixLength: 24}]}}}")), o))
	f, err := fabrics.Parse(o)
	must(b, err)
	pool, err := noderange.New(*f.NodeRanges, []noderange.Owner{
		{Node: "other", Own: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/24")}},
	})
	must(b, err)
	own, _, err := pool.Assign("rig", time.Now())
	must(b, err)
	text, err := f.Config(fabrics.NodeParams{Own: own, IPAMDir: partDir})
	must(b, err)
	var conf struct{ IPAM json.RawMessage }
	must(b, json.Unmarshal(text, &conf))
	var line bytes.Buffer
	must(b, json.Compact(&line, conf.IPAM))
	return line.String()
}

// given counts what both IPAM plugins have given.
func given(b *testing.B) int {
	b.Helper()
	out, err := output("kubectl", "get", "ippools.whereabouts.cni.cncf.io", "-A", "-o",
		"jsonpath={.items[*].spec.allocations}")
	must(b, err)
	files, err := filepath.Glob(filepath.Join(partDir, "bench", "10.200.*"))
	must(b, err)
	return strings.Count(out, `"podref"`) + len(files)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func benchPods(b *testing.B, plugin, ipam string, pods int) {
	b.Helper()
	file := filepath.Join("/opt/cni/bin", plugin)
	must(b, os.Rename(file, file+".real"))
	must(b, os.WriteFile(file, []byte(timed), 0o755))
	defer func() { must(b, os.Rename(file+".real", file)) }()
	must(b, os.WriteFile("/run/timed.log", nil, 0o600))
	var links, definitions, list strings.Builder
	for p := range pods {
		var networks []string
		for r := range railsPerPod {
			name := fmt.Sprintf("b%dr%d", p, r)
			fmt.Fprintf(&links, "link add %s type veth peer name %sp\nlink set %sp up\n", name, name, name)
			fmt.Fprintf(
				&definitions,
				"---\napiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s, "+
					"labels: {bench: pods}}\n"+
					`spec: {config: '{"cniVersion":"1.0.0","name":"bench","type":%q,"device":%q,"ipam":%s}'}`+"\n",
				name,
				plugin,
				name,
				ipam,
			)
			networks = append(networks, name)
		}
		fmt.Fprintf(
			&list,
			"---\napiVersion: v1\nkind: Pod\nmetadata: {name: b%d, labels: {bench: pods}, annotations: "+
				"{k8s.v1.cni.cncf.io/networks: %q}}\nspec:\n"+
				"  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: \"localhost/box:e2e\", "+
				"imagePullPolicy: Never}]\n",
			p,
			strings.Join(networks, ","),
		)
	}
	batch := exec.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(links.String())
	must(b, batch.Run())
	must(b, current.apply(definitions.String()))
	b.ResetTimer()
	began := time.Now()
	must(b, current.apply(list.String()))
	_, err := output("kubectl", "wait", "--for=condition=Ready", "--timeout=900s", "pod", "-l", "bench=pods")
	must(b, err)
	attached := time.Since(began)
	unique(b, pods*railsPerPod)
	began = time.Now()
	_, err = output("kubectl", "delete", "pod", "-l", "bench=pods", "--wait", "--timeout=900s")
	must(b, err)
	detached := time.Since(began)
	b.StopTimer()
	b.ReportMetric(attached.Seconds(), "s/attach-all")
	b.ReportMetric(detached.Seconds(), "s/detach-all")
	report(b, "ADD")
	report(b, "DEL")
	if n := given(b); n != 0 {
		b.Errorf("%d addresses are left", n)
	}
	_, err = output("kubectl", "delete", "network-attachment-definition", "-l", "bench=pods")
	must(b, err)
	for p := range pods {
		for r := range railsPerPod {
			must(b, exec.Command("ip", "link", "delete", fmt.Sprintf("b%dr%dp", p, r)).Run())
		}
	}
}

// unique asserts that every interface has an address of its own.
func unique(b *testing.B, want int) {
	b.Helper()
	if got := given(b); got != want {
		b.Errorf("%d addresses are allocated, want %d", got, want)
	}
	var addresses []string
	out, err := output("kubectl", "get", "pod", "-l", "bench=pods", "-o",
		`jsonpath={.items[*].metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	must(b, err)
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, `"10.200.`) {
			addresses = append(addresses, strings.Trim(word, `",`))
		}
	}
	slices.Sort(addresses)
	if len(addresses) != want || len(slices.Compact(addresses)) != want {
		b.Errorf("pods have %d addresses, %d different ones, want %d", len(addresses), len(slices.Compact(addresses)),
			want)
	}
}

// report shows the median and the 99th percentile of a command, and how often it failed.
func report(b *testing.B, command string) {
	b.Helper()
	text, err := os.ReadFile("/run/timed.log")
	must(b, err)
	var seconds []float64
	failed := 0
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		if len(w) != 3 || w[0] != command {
			continue
		}
		ns, err := strconv.ParseFloat(w[2], 64)
		must(b, err)
		if w[1] != "0" {
			failed++
		}
		seconds = append(seconds, ns/1e9)
	}
	if len(seconds) == 0 {
		b.Fatalf("no %s was seen", command)
	}
	slices.Sort(seconds)
	b.ReportMetric(seconds[len(seconds)/2], "s/"+command+"-p50")
	b.ReportMetric(seconds[len(seconds)*99/100], "s/"+command+"-p99")
	b.ReportMetric(float64(failed), command+"-failed")
}
