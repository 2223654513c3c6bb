package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// pools is the pattern of nv-ipam: a pool's status has the ranges of all nodes, its controller writes the whole list
// when there is another Node, and the agent of each node watches all pools. There is one pool for each fabric.
type pools struct {
	*options
	n   int
	out *report
}

var ippools = schema.GroupVersionResource{Group: "nv-ipam.nvidia.com", Version: "v1alpha1", Resource: "ippools"}

// poolCRD has the shape of nv-ipam's IPPool.
const poolCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.nv-ipam.nvidia.com}
spec:
  group: nv-ipam.nvidia.com
  scope: Namespaced
  names: {plural: ippools, singular: ippool, kind: IPPool}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {subnet: {type: string}, perNodeBlockSize: {type: integer}, gateway: {type: string}}
          status:
            type: object
            properties:
              allocations:
                type: array
                items:
                  type: object
                  properties: {nodeName: {type: string}, startIP: {type: string}, endIP: {type: string}}
`

const poolText = `{apiVersion: nv-ipam.nvidia.com/v1alpha1, kind: IPPool, metadata: {name: rail-%d, namespace: default},
  spec: {subnet: 10.%d.0.0/13, perNodeBlockSize: 62, gateway: 10.%d.0.1}}`

func (p *pools) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := newRig(ctx, 0)
	if err != nil {
		return err
	}
	defer r.stop() //nolint:errcheck // a directory in /tmp
	if err := r.server.ApplyText(ctx, []byte(poolCRD)); err != nil {
		return err
	}
	for i := range nFabrics {
		if err := r.server.ApplyText(ctx, fmt.Appendf(nil, poolText, i, 8*i, 8*i)); err != nil {
			return err
		}
	}
	from, err := r.meter.read(ctx)
	if err != nil {
		return err
	}
	if err := p.bringUp(ctx, r); err != nil {
		return err
	}
	done, err := r.meter.since(ctx, "bring-up", p.n, from)
	if err != nil {
		return err
	}
	p.out.add(done, "all nodes had their ranges", "")
	if from, err = r.meter.read(ctx); err != nil {
		return err
	}
	if err := p.allocate(ctx, r.server.Config, p.n+1); err != nil {
		return err
	}
	if err := p.delivered(ctx, r, from, nFabrics*p.n); err != nil {
		return err
	}
	if done, err = r.meter.since(ctx, "one node joins", p.n, from); err != nil {
		return err
	}
	p.out.add(done, "every node was told of all allocations of the eight pools", "")
	return nil
}

// bringUp starts the agents. As often as it can the controller writes the ranges of all nodes that there are.
func (p *pools) bringUp(ctx context.Context, r *rig) error {
	var there, ready atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			n := int(there.Load())
			if err := p.allocate(ctx, r.server.Config, n); err != nil || n == p.n {
				ended <- err
				return
			}
			pause(ctx, 10*time.Millisecond)
		}
	}()
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for range p.n {
		c := r.config()
		ownConnection(c)
		if err := watchPools(ctx, c, p.n, &ready); err != nil {
			return err
		}
		there.Add(1)
		<-tick.C
	}
	if err := <-ended; err != nil {
		return err
	}
	_, err := until(ctx, "all nodes know their ranges", 20*time.Minute, func() bool {
		p.progress("pools: %d of %d nodes know of all ranges", ready.Load()/nFabrics, p.n)
		return int(ready.Load()) == nFabrics*p.n
	})
	return err
}

// watchPools is an agent: it counts the pools that have ranges of n nodes.
func watchPools(ctx context.Context, c *rest.Config, n int, ready *atomic.Int64) error {
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return err
	}
	f := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "default", nil)
	full := func(o any) bool {
		u, _ := o.(*unstructured.Unstructured)
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "allocations")
		return len(list) >= n
	}
	_, err = f.ForResource(ippools).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if full(o) {
				ready.Add(1)
			}
		},
		UpdateFunc: func(old, o any) {
			if !full(old) && full(o) {
				ready.Add(1)
			}
		},
	})
	f.Start(ctx.Done())
	return err
}

// allocate writes the ranges of n nodes into all pools.
func (p *pools) allocate(ctx context.Context, c *rest.Config, n int) error {
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		return err
	}
	client := d.Resource(ippools).Namespace("default")
	for i := range nFabrics {
		pool, err := client.Get(ctx, fabricName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		var list []any
		for j := range n {
			list = append(list, map[string]any{"nodeName": name(j),
				"startIP": fmt.Sprintf("10.%d.%d.%d", 8*i+j>>10, j>>2&255, j&3<<6+1),
				"endIP":   fmt.Sprintf("10.%d.%d.%d", 8*i+j>>10, j>>2&255, j&3<<6+62)})
		}
		pool.Object["status"] = map[string]any{"allocations": list}
		if _, err := client.UpdateStatus(ctx, pool, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// delivered waits until so many events of pools were sent.
func (p *pools) delivered(ctx context.Context, r *rig, from *sample, n int) error {
	watch := call{"WATCH", "ippools"}
	_, err := until(ctx, "all nodes are told", 10*time.Minute, func() bool {
		s, err := r.meter.read(ctx)
		return err == nil && s.rows[watch].events-from.rows[watch].events >= float64(n)
	})
	return err
}
