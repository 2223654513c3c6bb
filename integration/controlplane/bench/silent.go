package main

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// silent are nodes whose agents have reported once and then say and hear nothing: the controller and etcd have as much
// to do with them as with others, and the machine less.
type silent struct {
	client   client.Client
	from, to int
}

func newSilent(r *rig, from, to int) (*silent, error) {
	scheme, err := controller.Scheme()
	if err != nil {
		return nil, err
	}
	c := rest.CopyConfig(r.server.Config)
	c.QPS = -1
	api, err := client.New(c, client.Options{Scheme: scheme})
	return &silent{api, from, to}, err
}

// report makes the FabricNodes.
func (s *silent) report(ctx context.Context, status *v1alpha1.FabricNodeStatus) error {
	var wg sync.WaitGroup
	errs := make(chan error, s.to-s.from)
	tokens := make(chan struct{}, 8)
	for i := s.from; i < s.to; i++ {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
			err := s.client.Create(ctx, n)
			if err == nil {
				old := n.DeepCopy()
				status.DeepCopyInto(&n.Status)
				err = s.client.Status().Patch(ctx, n, client.MergeFrom(old))
			}
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// await waits until all of them have their ranges.
func (s *silent) await(ctx context.Context) error {
	if s.from == s.to {
		return nil
	}
	_, err := until(ctx, "all FabricNodes have their ranges", 20*time.Minute, func() bool {
		pause(ctx, 2*time.Second)
		list := &v1alpha1.FabricNodeList{}
		if err := s.client.List(ctx, list); err != nil {
			return false
		}
		ranged := 0
		for i := range list.Items {
			if len(list.Items[i].Spec.Ranges) == nFabrics {
				ranged++
			}
		}
		return ranged >= s.to
	})
	return err
}
