package controller

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/logs"
)

// CRDs is the command `fabric-agent crds`: it brings the CRDs of the cluster in line with the files of a directory.
// The chart runs it before an upgrade, because Helm creates CRDs and never changes them.
func CRDs(ctx context.Context, args []string, stderr io.Writer) error {
	var kubeconfig, dir string
	flags := func(f *flag.FlagSet) {
		f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
		f.StringVar(&dir, "dir", "/etc/fabric-cni/crds", "`directory` with the CRDs, each a file *.yaml")
	}
	if done, err := parse("crds", args, flags, stderr); done || err != nil {
		return err
	}
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	return applyCRDs(ctx, rc, dir, logs.New(stderr, slog.LevelInfo))
}

func applyCRDs(ctx context.Context, rc *rest.Config, dir string, log *slog.Logger) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file *.yaml in %s", dir)
	}
	if err != nil {
		return err
	}
	c, err := client.New(rc, client.Options{})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(b, &o.Object); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		// Helm, kubectl or kustomize have made it, and their fields are taken over: the schema is not theirs to change.
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("fabric-crds"),
			client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply the CRD %s: %w", o.GetName(), err)
		}
		log.Info("applied", "crd", o.GetName())
	}
	return nil
}
