package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Pair is a program that runs as server in one pod and as client in another, as perftest, the pingpongs of
// ibverbs-utils and rping do.
type Pair struct {
	Server, Client         *Pod
	Tool                   []string      // the program, with the arguments of both sides
	ServerArgs, ClientArgs []string      // what follows on one side
	Address                string        // of the server: the client's last argument; "": none
	CM                     bool          // they meet by the RDMA connection manager instead of TCP: rping, perftest -R
	Timeout                time.Duration // 0: a minute; both sides are killed then
}

// Talk is what the two sides did.
type Talk struct{ Server, Client Ended }

// OK reports whether both sides succeeded.
func (t Talk) OK() bool { return t.Server.OK() && t.Client.OK() }

func (t Talk) String() string { return t.Server.String() + "\n" + t.Client.String() }

// Exchange runs a tool between two pods until both sides have ended, and returns whatever they did. The client gets the
// server's address as its last argument. See Pair for more.
func Exchange(t testing.TB, server, client *Pod, tool []string, address string) Talk {
	t.Helper()
	return Pair{Server: server, Client: client, Tool: tool, Address: address}.Exec(t)
}

// Talking is a Pair that runs.
type Talking struct {
	Server, Client *Program
	timeout        time.Duration
}

// Start starts the server, waits until it listens, and starts the client. Both are killed when the test ends. A server
// that ends before it listens fails the test.
func (p Pair) Start(t testing.TB) *Talking {
	t.Helper()
	talking := &Talking{timeout: p.Timeout}
	if talking.timeout == 0 {
		talking.timeout = time.Minute
	}
	talking.Server = p.Server.Start(t, slices.Concat(p.Tool, p.ServerArgs)...)
	listens := talking.Server.Listens
	if p.CM {
		listens = func() error { return p.Server.listensByCM(talking.Server) }
	}
	Until(t, talking.Server.where+" listens", listens)
	args := slices.Concat(p.Tool, p.ClientArgs)
	if p.Address != "" {
		args = append(args, p.Address)
	}
	talking.Client = p.Client.Start(t, args...)
	return talking
}

// Wait waits until both sides have ended, and kills them when their time is over.
func (t *Talking) Wait() Talk {
	client := t.Client.Wait(t.timeout)
	patience := t.timeout
	if !client.OK() {
		patience = Patience // a server whose client has failed may wait for ever
	}
	return Talk{Server: t.Server.Wait(patience), Client: client}
}

// Exec runs both sides and returns whatever they do.
func (p Pair) Exec(t testing.TB) Talk {
	t.Helper()
	return p.Start(t).Wait()
}

// Must runs both sides and fails the test unless both succeed.
func (p Pair) Must(t testing.TB) Talk {
	t.Helper()
	talk := p.Exec(t)
	if !talk.OK() {
		t.Fatal(talk)
	}
	return talk
}

// listensByCM returns nil if a program in the pod listens through the RDMA connection manager.
func (p *Pod) listensByCM(prog *Program) error {
	if !prog.Running() {
		return fmt.Errorf("%s has ended: %s", prog.where, prog.Output())
	}
	out, err := p.Command("rdma", "resource", "show", "cm_id")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); slices.Contains(f, "LISTEN") && slices.Contains(f, strconv.Itoa(prog.PID())) {
			return nil
		}
	}
	return errors.New(out)
}

// Counters returns the counters of port 1 of an HCA as the pod sees them in its /sys: those in counters/
// (port_xmit_data and port_rcv_data count units of four octets) and those in hw_counters/.
func Counters(t testing.TB, pod *Pod, hca string) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	err := pod.DoSysfs(func() error {
		files, err := filepath.Glob("/sys/class/infiniband/" + hca + "/ports/1/*counters/*")
		if err != nil {
			return err
		}
		for _, file := range files {
			name := filepath.Base(file)
			if name == "lifespan" { // of the kernel's copy, in ms
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if all[name], err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
				return fmt.Errorf("counter %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read counters of %s in pod %s: %v", hca, pod.Name, err)
	}
	return all
}
