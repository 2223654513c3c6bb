package deviceplugin_test

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
)

// kubelet asks for a container's devices in no order: the container gets the same.
func TestAllocateInAnyOrder(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	var units []deviceplugin.Unit
	var ids []string
	for _, n := range []string{"0", "1", "2", "3"} {
		id := "0000:0" + n + ":00.0"
		ids = append(ids, id)
		units = append(units, deviceplugin.Unit{ID: id, Healthy: true, NUMA: -1, Files: []string{
			"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs" + n,
		}})
	}
	set := &deviceplugin.Set{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(set.Stop)
	if err := set.Update(t.Context(), map[string][]deviceplugin.Unit{"fabric.dev/ib": units}); err != nil {
		t.Fatal(err)
	}
	c := k.dial(t, k.await())
	var first []string
	for range 10 {
		asked := slices.Clone(ids)
		rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		got, err := c.Allocate(t.Context(), &api.AllocateRequest{
			ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: asked}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, d := range got.GetContainerResponses()[0].GetDevices() {
			files = append(files, d.GetHostPath())
		}
		if first == nil {
			first = files
		}
		if len(files) != 5 || !slices.Equal(first, files) {
			t.Errorf("%v: %v, want %v", asked, files, first)
		}
	}
}
