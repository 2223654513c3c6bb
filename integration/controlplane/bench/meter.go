package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/client-go/kubernetes"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
)

// meter reads the API server's own metrics.
type meter struct {
	server *controlplane.Server
	dir    string
	at     time.Time
	was    map[string]float64
	disk   int64
}

func (m *meter) mark(ctx context.Context) (err error) {
	m.was, err = m.read(ctx)
	m.at, m.disk = time.Now(), m.size()
	return err
}

func (m *meter) size() int64 {
	i, err := os.Stat(m.dir + "/etcd/member/snap/db")
	if err != nil {
		return 0
	}
	return i.Size()
}

func (m *meter) read(ctx context.Context) (map[string]float64, error) {
	client, err := kubernetes.NewForConfig(m.server.Config)
	if err != nil {
		return nil, err
	}
	b, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	p := expfmt.TextParser{}
	families, err := p.TextToMetricFamilies(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, kind := range map[string]string{
		"apiserver_request_total": "requests", "apiserver_response_sizes": "bytes", "apiserver_watch_events_sizes": "events",
	} {
		f := families[name]
		if f == nil {
			continue
		}
		for _, x := range f.Metric {
			l := map[string]string{}
			for _, p := range x.Label {
				l[p.GetName()] = p.GetValue()
			}
			key := kind + " " + l["verb"] + " " + l["resource"]
			if l["subresource"] != "" {
				key += "/" + l["subresource"]
			}
			if kind == "events" {
				key = "events " + l["kind"] + l["resource"]
				out["number of "+key] += float64(x.GetHistogram().GetSampleCount())
			}
			out[key] += value(x)
		}
	}
	return out, nil
}

func value(x *dto.Metric) float64 {
	if x.Counter != nil {
		return x.Counter.GetValue()
	}
	return x.Histogram.GetSampleSum()
}

func (m *meter) report(ctx context.Context, phase string, n int) {
	now, err := m.read(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	seconds := time.Since(m.at).Seconds()
	fmt.Printf("%s, %.0f s: etcd grew by %.1f MB\n", phase, seconds, float64(m.size()-m.disk)/1e6)
	var keys []string
	for k := range now {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if d := now[k] - m.was[k]; d >= float64(n)/100 || d > 0 && k[0] == 'r' {
			fmt.Printf("  %-60s %14.0f  %10.4f/s  %12.5f/s and node\n", k, d, d/seconds, d/seconds/float64(n))
		}
	}
}
