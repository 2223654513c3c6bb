package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// What a node says of itself fits the FabricNode, however many pods are on a device; all of them are counted.
func TestStatusBounded(t *testing.T) {
	link, err := cluster.NewLink(&rest.Config{Host: "http://127.0.0.1:1"}, "n", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store := journal.Store{Dir: t.TempDir()}
	const pods = maxPods + 10
	for i := range pods {
		entry := fmt.Sprintf(`{"version":1,"containerID":"c%d","ifName":"net1","kind":"ipoib","network":"ib",
			"args":"K8S_POD_NAMESPACE=ml;K8S_POD_NAME=p%d",
			"child":{"parent":{"bus":"pci","name":"0000:3b:00.0"}}}`, i, i)
		file := filepath.Join(store.Dir, "attachments", fmt.Sprintf("c%d@net1", i))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	devices := rails(device.PortActive, 2)
	devices[0].Address = device.Address{Bus: "pci", Name: "0000:3b:00.0"}
	for range maxDevices {
		devices = append(devices, devices[1])
	}
	r := statusReconciler{
		link: link, store: store, plugin: install.Target{}, now: time.Now,
		log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	s := r.status(&view{
		fabrics: []fabrics.Fabric{{Name: "ib"}}, assigned: map[string][]survey.Device{"ib": devices},
		findings: &condition.Set{},
	})
	if s.Devices.Total != maxDevices+2 || s.Devices.Attached != pods {
		t.Errorf("%+v", s.Devices)
	}
	if got := s.Fabrics[0].Devices; len(got) != maxDevices || len(got[0].Pods) != maxPods {
		t.Errorf("%d devices, %d pods", len(got), len(got[0].Pods))
	}
}
