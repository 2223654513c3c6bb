package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

var (
	server  *controlplane.Server
	scratch string // a directory for what all tests share
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard()) // what is logged without a test
	klog.SetLogger(logr.Discard())
	var err error
	if scratch, err = os.MkdirTemp("", "controlplane"); err != nil {
		fmt.Println(err)
		return 2
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	began := time.Now()
	if server, err = controlplane.Start(ctx, filepath.Join(scratch, "server")); err == nil {
		defer server.Stop()
		err = server.Apply(ctx, append(everything, server.Manifests()+"/*")...)
	}
	if err != nil {
		fmt.Println(err)
		return 2
	}
	fmt.Printf("controlplane: up in %.1f s\n", time.Since(began).Seconds())
	return m.Run()
}

// built is the path of one of the project's programs: both are built once.
func built(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

var programs = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(scratch, "bin")
	build := exec.Command("go", "build", "-o", dir+"/", "../../cmd/fabric-agent", "../../cmd/fabricctl")
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build: %w: %s", err, out)
	}
	return dir, err
})

// fresh gives the test an API server of its own, with these objects, for what the others could not work beside.
func fresh(t *testing.T, files ...string) {
	t.Helper()
	freshWith(t, nil, files...)
}

// oldest is the flag with which the API server is as that of the oldest Kubernetes with Dynamic Resource Allocation:
// without the features that came later, some of which can't be switched off any more.
const oldest = "--emulated-version=1.34"

// freshWith is fresh with flags of kube-apiserver.
func freshWith(t *testing.T, flags []string, files ...string) {
	t.Helper()
	own, err := controlplane.Start(t.Context(), t.TempDir(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	all := server
	server = own
	t.Cleanup(func() {
		server = all
		own.Stop()
	})
	if err := own.Apply(t.Context(), files...); err != nil {
		t.Fatal(err)
	}
	until(t, func() string { // a kind is served a moment after it was made
		return errorOf(whole(t).List(t.Context(), &v1alpha1.FabricNodeList{}))
	})
}

func errorOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
