// Command kubeall is etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl in one binary,
// chosen by argv[0]: one link instead of six. It is a module of its own: nothing of this belongs into the product's
// go.mod.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	var c *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		c = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		c = kcm.NewControllerManagerCommand()
	case "kube-scheduler":
		c = scheduler.NewSchedulerCommand()
	case "kubelet":
		c = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		c = kubectl.NewDefaultKubectlCommand()
	default:
		fmt.Fprintln(os.Stderr, "unknown component", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(c))
}
