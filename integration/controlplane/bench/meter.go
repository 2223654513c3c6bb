package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
)

// row is what the API server did for one verb and resource.
type row struct {
	requests float64
	bytes    float64 // of responses; of a watch: of its events
	events   float64
}

// call is a verb and a resource, with the subresource.
type call struct{ verb, resource string }

// sample is what the metrics say at one time, since the API server was started.
type sample struct {
	at   time.Time
	rows map[call]row
	body float64 // bytes of what clients sent
	shed float64 // requests refused with 429
	lost float64 // conflicts, 409
	etcd float64 // bytes
}

// meter reads the metrics of the API server and of etcd.
type meter struct{ server *controlplane.Server }

// resources are those that this is about. What the API server does for itself is not.
var resources = []string{
	"configmaps", "events", "fabricnodes", "fabrics", "namespaces", "network-attachment-definitions",
	"nodes", "pods", "leases",
}

func families(b []byte) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(bytes.NewReader(b))
}

func (m *meter) api(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	client, err := kubernetes.NewForConfig(m.server.Config)
	if err != nil {
		return nil, err
	}
	b, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	return families(b)
}

// read takes a sample.
func (m *meter) read(ctx context.Context) (*sample, error) {
	f, err := m.api(ctx)
	if err != nil {
		return nil, err
	}
	s := &sample{at: time.Now(), rows: map[call]row{}}
	add := func(metric string, f func(r *row, v float64, x *dto.Metric)) func(*dto.MetricFamily) {
		return func(family *dto.MetricFamily) {
			for _, x := range family.GetMetric() {
				l := labels(x)
				k := call{cmp.Or(l["verb"], "WATCH"), l["resource"]}
				if l["subresource"] != "" {
					k.resource += "/" + l["subresource"]
				}
				if !slices.Contains(resources, l["resource"]) {
					continue
				}
				r := s.rows[k]
				f(&r, value(x), x)
				s.rows[k] = r
				if metric == "apiserver_request_total" {
					s.codes(l["code"], value(x))
				}
			}
		}
	}
	for metric, f2 := range map[string]func(r *row, v float64, x *dto.Metric){
		"apiserver_request_total":      func(r *row, v float64, _ *dto.Metric) { r.requests += v },
		"apiserver_response_sizes":     func(r *row, v float64, _ *dto.Metric) { r.bytes += v },
		"apiserver_watch_events_sizes": func(r *row, v float64, x *dto.Metric) { r.bytes += v; r.events += count(x) },
	} {
		add(metric, f2)(f[metric])
	}
	for _, x := range f["apiserver_request_body_size_bytes"].GetMetric() {
		if slices.Contains(resources, labels(x)["resource"]) {
			s.body += value(x)
		}
	}
	s.etcd, err = m.etcd(ctx)
	return s, err
}

func (s *sample) codes(code string, n float64) {
	switch code {
	case "429":
		s.shed += n
	case "409":
		s.lost += n
	}
}

// etcd is the size of its data. Nothing is compacted while this measures.
func (m *meter) etcd(ctx context.Context) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.server.Etcd+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(answer.Body); err != nil {
		return 0, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	f, err := families(b.Bytes())
	if err != nil {
		return 0, err
	}
	for _, x := range f["etcd_mvcc_db_total_size_in_use_in_bytes"].GetMetric() {
		return value(x), nil
	}
	return 0, fmt.Errorf("etcd does not say how large its data are")
}

// watches is how many watches of a resource are open.
func (m *meter) watches(ctx context.Context, resource string) (n int) {
	f, err := m.api(ctx)
	if err != nil {
		return 0
	}
	for _, x := range f["apiserver_longrunning_requests"].GetMetric() {
		if l := labels(x); l["verb"] == "WATCH" && l["resource"] == resource {
			n += int(value(x))
		}
	}
	return n
}

func labels(x *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, p := range x.GetLabel() {
		out[p.GetName()] = p.GetValue()
	}
	return out
}

func value(x *dto.Metric) float64 {
	switch {
	case x.Counter != nil:
		return x.Counter.GetValue()
	case x.Gauge != nil:
		return x.Gauge.GetValue()
	}
	return x.Histogram.GetSampleSum()
}

func count(x *dto.Metric) float64 { return float64(x.GetHistogram().GetSampleCount()) }

// phase is what happened between two samples.
type phase struct {
	name    string
	nodes   int
	seconds float64
	rows    map[call]row
	body    float64
	shed    float64
	lost    float64
	etcd    float64
}

// since is what happened since a sample; nil: since the API server was started.
func (m *meter) since(ctx context.Context, name string, nodes int, from *sample) (*phase, error) {
	now, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	p := &phase{name: name, nodes: nodes, seconds: now.at.Sub(from.at).Seconds(), rows: now.rows,
		body: now.body - from.body, shed: now.shed - from.shed, lost: now.lost - from.lost, etcd: now.etcd - from.etcd}
	for k, r := range from.rows {
		was := p.rows[k]
		p.rows[k] = row{was.requests - r.requests, was.bytes - r.bytes, was.events - r.events}
	}
	return p, nil
}

// requests is how many there were, without those for leases.
func (p *phase) requests() (n float64) {
	for k, r := range p.rows {
		if k.resource != "leases" {
			n += r.requests
		}
	}
	return n
}

func (p *phase) bytes() (n float64) {
	for _, r := range p.rows {
		n += r.bytes
	}
	return n
}

// detail is a table of the calls.
func (p *phase) detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %d nodes, %.0f s:\n\n| call | requests | 1/s | 1/s and node | bytes sent | events |\n"+
		"|---|---|---|---|---|---|\n", p.name, p.nodes, p.seconds)
	byName := func(a, b call) int { return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb)) }
	for _, k := range slices.SortedFunc(maps.Keys(p.rows), byName) {
		if r := p.rows[k]; r.requests > 0 || r.events > 0 {
			fmt.Fprintf(&b, "| %s %s | %.0f | %.2f | %.5f | %s | %.0f |\n", k.verb, k.resource, r.requests,
				r.requests/p.seconds, r.requests/p.seconds/float64(p.nodes), size(r.bytes), r.events)
		}
	}
	return b.String()
}

// size is a number of bytes for people, in powers of ten.
func size(n float64) string {
	for _, u := range []struct {
		unit string
		n    float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= u.n {
			return fmt.Sprintf("%.3g %s", n/u.n, u.unit)
		}
	}
	return fmt.Sprintf("%.0f B", n)
}
