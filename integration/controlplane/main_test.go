package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
)

var server *controlplane.Server

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "controlplane")
	if err != nil {
		fmt.Println(err)
		return 2
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	if server, err = controlplane.Start(ctx, dir); err == nil {
		defer server.Stop()
		err = server.Apply(ctx, manifests+"crds/fabric.dev_*.yaml", server.Manifests()+"/*",
			manifests+"base/namespace.yaml", manifests+"base/controller.yaml")
	}
	if err != nil {
		fmt.Println(err)
		return 2
	}
	fmt.Printf("controlplane: up in %.1f s\n", time.Since(began).Seconds())
	return m.Run()
}
