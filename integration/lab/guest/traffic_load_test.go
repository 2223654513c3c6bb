//go:build labguest

package guest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// endless runs ib_write_bw between two pods, in both directions and without end, and returns when both
// send. The two find each other by a TCP port, which has to be free. They poll, each on a core of its
// own on a node; the one processor of a guest they have only while no other process wants it.
func endless(t testing.TB, server, client *Pod, serverHCA, clientHCA, address string, port int) *Talking {
	t.Helper()
	talking := Pair{
		Server: server, Client: client, Address: address,
		Tool: []string{
			"ib_write_bw", "-p", fmt.Sprint(port), "-F", "-b", "-s", "65536", "-t", "16", "--run_infinitely",
		},
		ServerArgs: []string{"-d", serverHCA}, ClientArgs: []string{"-d", clientHCA},
	}.Start(t)
	for pod, p := range map[*Pod]*Program{server: talking.Server, client: talking.Client} {
		hca := map[*Pod]string{server: serverHCA, client: clientHCA}[pod]
		before := Counters(t, pod, hca)["port_xmit_data"]
		Until(t, "ib_write_bw sends from "+pod.Name, func() error {
			err := pod.readyToSend(p)
			// Its last word over TCP comes after RTS, on the same rail.
			if sent := 4 * (Counters(t, pod, hca)["port_xmit_data"] - before); err == nil && sent < 16*65536 {
				err = fmt.Errorf("%d octets are sent: %s", sent, p.Output())
			}
			return err
		})
	}
	for _, p := range []*Program{talking.Server, talking.Client} {
		if err := syscall.Setpriority(syscall.PRIO_PGRP, p.PID(), 19); err != nil {
			t.Fatal(err)
		}
	}
	return talking
}

// readyToSend returns nil if a program has a queue pair that is ready to send: its peer may not be yet, and what was
// sent before was not sent by it.
func (p *Pod) readyToSend(prog *Program) error {
	out, err := p.Command("rdma", "resource", "show", "qp", "pid", strconv.Itoa(prog.PID()))
	if err == nil && !strings.Contains(out, "state RTS") {
		err = fmt.Errorf("no queue pair of %s is in RTS: %s%s", prog.where, out, prog.Output())
	}
	return err
}

// fails waits until a program ends by itself, and fails the test unless that is with an error.
func fails(t testing.TB, p *Program) {
	t.Helper()
	if end := p.Wait(Patience); end.Late || end.OK() {
		t.Errorf("it should have failed by itself: %s", end)
	}
}

// signal sends a signal to a program.
func signal(t testing.TB, p *Program, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID(), s); err != nil {
		t.Fatal(err)
	}
}

// verbsObjects returns how many verbs objects the RDMA devices have that a pod sees, by "RDMA device kind". Those of
// IPoIB and of the kernel's management are among them; a ctx is a process that has the device open.
func verbsObjects(t testing.TB, pod *Pod) map[string]int {
	t.Helper()
	out, err := pod.Command("rdma", "resource", "show")
	if err != nil {
		t.Fatal(err)
	}
	objects := make(map[string]int)
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // 0: mlx5_0: pd 2 cq 3 qp 3 cm_id 0 mr 0 ctx 0 srq 0
		for i := 2; i+1 < len(f); i += 2 {
			n, err := strconv.Atoi(f[i+1])
			if err != nil {
				t.Fatalf("rdma resource show: %q: %v", line, err)
			}
			objects[strings.TrimSuffix(f[1], ":")+" "+f[i]] = n
		}
	}
	return objects
}

// wantObjects waits until the RDMA devices that a pod sees have these objects: the kernel frees those of a
// killed process after its death has been reported.
func wantObjects(t testing.TB, pod *Pod, want map[string]int) {
	t.Helper()
	Until(t, "the verbs objects are what they were", func() error {
		got := verbsObjects(t, pod)
		for what, n := range want {
			if got[what] != n {
				return fmt.Errorf("%s: %d, want %d", what, got[what], n)
			}
		}
		return nil
	})
}

// wantUnused waits until nothing holds the module of the HCAs: every context of user space has been closed.
func wantUnused(t testing.TB) {
	t.Helper()
	Until(t, "fakeib is not in use", func() error {
		n, err := os.ReadFile("/sys/module/fakeib/refcnt")
		if err == nil && string(n) != "0\n" {
			err = fmt.Errorf("in use %s times", strings.TrimSpace(string(n)))
		}
		return err
	})
}
