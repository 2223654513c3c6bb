package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// crds installs the kinds of the project for the test.
func crds(t testing.TB) {
	t.Helper()
	dir := filepath.Join(current.repo, "deployments/crds")
	k(t, "apply", "-k", dir)
	t.Cleanup(func() { removed(t, "-k", dir) })
	for _, crd := range []string{"fabrics.fabric.dev", "fabricnodes.fabric.dev"} {
		established(t, crd)
	}
}

// rights installs what is deployed, but for the pods: kinds, accounts, what they may do, and the admission policy.
func rights(t testing.TB) {
	t.Helper()
	crds(t)
	file := filepath.Join(t.TempDir(), "base.yaml")
	all := k(t, "kustomize", filepath.Join(current.repo, "deployments/base"))
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := documents(file, func(kind string) bool {
		return kind != "DaemonSet" && kind != "Deployment" && kind != "CustomResourceDefinition"
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k(t, "apply", "-f", file)
	t.Cleanup(func() { removed(t, "-f", file) })
}

// controller runs fabric-controller on this machine, with the rights of its account. The function that it returns sends
// it a signal, and waits for its end.
func controller(t testing.TB) (end func(unix.Signal)) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	token := strings.TrimSpace(k(t, "-n", "fabric-system", "create", "token", "fabric-controller"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		err = current.kubeconfig(kubeconfig, token)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, error) {
		cmd := exec.Command(filepath.Join(current.run, "bin/fabric-agent"), "controller", "--kubeconfig="+kubeconfig,
			"--namespace=fabric-system", "--health-address=0")
		cmd.Stdout, cmd.Stderr = log, log
		return cmd, cmd.Start()
	}
	cmd, err := start()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // of cmd and ended
	ended, done := false, make(chan error, 1)
	go func() {
		for {
			err := cmd.Wait()
			time.Sleep(soon)
			mu.Lock()
			last := ended
			if !last { // it has lost its lease, and is started again as kubelet would
				cmd, err = start()
			}
			mu.Unlock()
			if last || err != nil {
				done <- err
				return
			}
		}
	}()
	end = func(s unix.Signal) {
		mu.Lock()
		was := ended
		ended = true
		mu.Unlock()
		if was {
			return
		}
		err := errors.Join(cmd.Process.Signal(s), <-done, log.Close())
		b, rerr := os.ReadFile(log.Name())
		if s != unix.SIGKILL && err != nil || t.Failed() {
			t.Logf("controller: %v\n%s", errors.Join(err, rerr), lastLines(string(b), 30))
		}
	}
	t.Cleanup(func() { end(unix.SIGTERM) })
	return end
}

// fabric applies a Fabric for the test, with its spec in YAML's flow style. It is not in force yet.
func fabric(t testing.TB, name, spec string) {
	t.Helper()
	apply(t, testfabrics.Object(name, spec))
	t.Cleanup(func() { removed(t, "fabric", name) })
}

// condition waits for a condition of a Fabric or a FabricNode: its status, its reason, and a part of its message.
func condition(t testing.TB, object, kind, status, reason, text string) {
	t.Helper()
	until(t, fmt.Sprintf("%s: %s is %s: %s %s", object, kind, status, reason, text), func() error {
		got, err := output("kubectl", "get", object, "-o",
			`jsonpath={.status.conditions[?(@.type=="`+kind+`")].status} `+
				`{.status.conditions[?(@.type=="`+kind+`")].reason} {.status.conditions[?(@.type=="`+kind+`")].message}`)
		if err == nil && (!strings.HasPrefix(got, status+" "+reason+" ") || !strings.Contains(got, text)) {
			err = textError(got)
		}
		return err
	})
}

// described waits until kubectl describe says this of an object.
func described(t *testing.T, kind, name string, all ...string) {
	t.Helper()
	until(t, "kubectl describe "+kind+" "+name+" says "+strings.Join(all, ", "), func() error {
		out, err := output("kubectl", "describe", kind, name)
		for _, want := range all {
			if err == nil && !strings.Contains(out, want) {
				err = textError(want + " is missing in\n" + out)
			}
		}
		return err
	})
}

// row waits until kubectl get prints these words in the columns of an object; * is any, and the last may be missing.
func row(t *testing.T, kind, name string, columns, want []string) {
	t.Helper()
	until(t, "kubectl get "+kind+" "+name+" prints "+strings.Join(want, " "), func() error {
		out, err := output("kubectl", "get", kind, name)
		if err != nil {
			return err
		}
		head, line, _ := strings.Cut(out, "\n")
		if got := strings.Fields(head); strings.Join(got, " ") != strings.Join(columns, " ") {
			return textError(out)
		}
		got := cells(head, line)
		for i := range want {
			if i >= len(got) || want[i] != "*" && got[i] != want[i] {
				return textError(out)
			}
		}
		return nil
	})
}

// cells are the words of a line of a table, by its head: a cell may be empty.
func cells(head, line string) (out []string) {
	for i := 0; i < len(head); {
		j := i
		for j < len(head) && head[j] != ' ' {
			j++
		}
		for j < len(head) && head[j] == ' ' {
			j++
		}
		cell := ""
		if j == len(head) {
			j = max(j, len(line)) // the last column is as wide as it is
		}
		if i < len(line) {
			cell = strings.TrimSpace(line[i:min(j, len(line))])
		}
		out, i = append(out, cell), j
	}
	return out
}

// stopAPI ends the API server until the returned function starts it again, which waits until it is ready.
func stopAPI(t *testing.T) (start func()) {
	t.Helper()
	if err := current.stopAPI(); err != nil {
		t.Fatal(err)
	}
	started := false
	start = func() {
		t.Helper()
		if started {
			return
		}
		started = true
		if err := current.startAPI(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(start)
	return start
}
