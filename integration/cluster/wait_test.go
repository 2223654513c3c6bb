package cluster

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// All waits are for a state. Their limits are for a quiet machine, see pace. patience is that of whatever guests of the
// lab have a part in: emulated time is slow and uneven.
const patience = 4 * time.Minute

// k runs kubectl, which has to succeed.
func k(t testing.TB, args ...string) string {
	t.Helper()
	out, err := output("kubectl", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func apply(t testing.TB, yaml string) {
	t.Helper()
	if err := current.apply(yaml); err != nil {
		t.Fatal(err)
	}
}

// until polls what happens on this machine.
func until(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := poll(what, 3*time.Minute, soon, f); err != nil {
		t.Fatal(err)
	}
}

// eventually polls what happens in guests, at leisure: what is asked costs a guest as much as what it is asked about.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	if err := poll(what, patience, 3*time.Second, f); err != nil {
		t.Fatal(err)
	}
}

// prints is for until and eventually: kubectl, called with args, prints want and nothing else.
func prints(want string, args ...string) func() error {
	return func() error {
		out, err := output("kubectl", args...)
		if err == nil && out != want {
			err = textError(out)
		}
		return err
	}
}

// textError is a state that is not the one that is waited for.
type textError string

func (e textError) Error() string { return string(e) }

// attempt bounds one kubectl that waits itself: when it ends, poll decides whether there is another one.
const attempt = "--timeout=15s"

// ready waits until the pods are Ready.
func ready(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := current.await("pod "+name+" is Ready", patience,
			"wait", "--for=condition=Ready", attempt, "pod/"+name); err != nil {
			t.Fatalf("%v\n%s", err, k(t, "describe", "pod", name))
		}
	}
}

// gone deletes pods, those that are there, and waits until they are gone.
func gone(t testing.TB, names ...string) {
	t.Helper()
	removed(t, append([]string{"pod"}, names...)...)
}

// removed deletes what there is of these objects, and waits until it is gone.
func removed(t testing.TB, args ...string) {
	t.Helper()
	args = append(args, "--ignore-not-found", "--wait", attempt)
	if err := current.await(strings.Join(args, " ")+": deleted", patience,
		append([]string{"delete"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// rolledOut waits until a DaemonSet or a Deployment has its pods, and they are Ready.
func rolledOut(t *testing.T, namespace, name string) {
	t.Helper()
	if err := current.await(name+" is rolled out", patience,
		"-n", namespace, "rollout", "status", name, attempt); err != nil {
		logs, _ := output("kubectl", "-n", namespace, "logs", name, "--all-containers", "--tail=40")
		t.Fatalf("%v\n%s\n%s", err, k(t, "-n", namespace, "describe", "pods"), logs)
	}
}

// event waits for an event of the pod with this text.
func event(t *testing.T, pod, text string) {
	t.Helper()
	until(t, "an event of "+pod+" says "+text, func() error {
		out, err := output("kubectl", "get", "events", "--field-selector", "involvedObject.name="+pod,
			"-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, text) {
			err = textError(out)
		}
		return err
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
