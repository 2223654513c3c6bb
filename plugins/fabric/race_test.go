package fabric_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// gate is an IPAM plugin that waits where a test wants it to. The file address.ID stands for an address that the
// attachment of container ID has.
type gate struct{ dir, typ string }

// With a file child, a child of the plugin does the work; with text in it, one without the plugin's environment.
const gateScript = `#!/bin/sh
cd %q
echo "$CNI_COMMAND $CNI_CONTAINERID" >>calls
work() {
	if [ -p "$CNI_COMMAND.$CNI_CONTAINERID" ]; then
		read -r x <"$CNI_COMMAND.$CNI_CONTAINERID"
	fi
	case $CNI_COMMAND in
	ADD) : >"address.$CNI_CONTAINERID" ;;
	DEL) rm -f "address.$CNI_CONTAINERID" ;;
	esac
}
if [ -s child ]; then
	env -i sh -c "echo child >>calls; read -r x <$CNI_COMMAND.$CNI_CONTAINERID; : >address.$CNI_CONTAINERID" & wait
elif [ -e child ]; then
	(echo child >>calls; work) & wait
else
	work
fi
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.1.0","ips":[{"address":"192.168.10.7/24"}]}'
`

// retry calls again what was busy, as a runtime does: on a slow machine a turn may not come in time.
func (n *node) retry(t *testing.T, c call) (a answer) {
	t.Helper()
	for range 10 {
		if a = n.run(t, c); a.Code != 11 || !strings.Contains(a.Msg, journal.ErrBusy.Error()) {
			break
		}
	}
	return a
}

// newGate makes the plugin under the name of a type: dhcp needs the interface, others run before it is there.
func newGate(t *testing.T, typ string) *gate {
	t.Helper()
	g := &gate{t.TempDir(), typ}
	script := fmt.Sprintf(gateScript, g.dir)
	if err := os.WriteFile(filepath.Join(g.dir, typ), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return g
}

// conf is a configuration with this IPAM plugin.
func (g *gate) conf() string {
	return confOf("1.1.0", `"device":"v0"`, fmt.Sprintf(`"ipam":{"type":%q}`, g.typ))
}

// call is a call of the usual attachment, for a container.
func (g *gate) call(n *node, command, id string) call {
	c := n.call(command, g.conf())
	c.id, c.env = id, []string{"CNI_PATH=" + g.dir}
	return c
}

// shut lets a command for a container wait until open.
func (g *gate) shut(t *testing.T, command, id string) {
	t.Helper()
	if err := unix.Mkfifo(g.fifo(command, id), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (g *gate) fifo(command, id string) string { return filepath.Join(g.dir, command+"."+id) }

// open lets the call that waits go on. It waits until one does.
func (g *gate) open(t *testing.T, command, id string) {
	t.Helper()
	fifo := g.fifo(command, id)
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(fifo); err != nil { // the next one passes
		t.Error(err)
	}
	if _, err := w.WriteString("\n"); err != nil {
		t.Error(err)
	}
	w.Close()
}

func (g *gate) calls(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func (g *gate) began(t *testing.T, line string) {
	t.Helper()
	sandbox.Until(t, "IPAM was called: "+line, func() bool { return strings.Contains(g.calls(t), line+"\n") })
}

func (g *gate) has(id string) bool {
	_, err := os.Stat(filepath.Join(g.dir, "address."+id))
	return err == nil
}

// hasNot asserts that a container has no address.
func (g *gate) hasNot(t *testing.T, id string) {
	t.Helper()
	if g.has(id) {
		t.Errorf("the address of %s is given", id)
	}
}

// running is a call that has not ended.
type running struct {
	cmd  *exec.Cmd
	done chan answer
}

func (n *node) start(t *testing.T, c call) *running {
	t.Helper()
	r := &running{done: make(chan answer, 1)}
	started := make(chan struct{})
	c.started = func(cmd *exec.Cmd) { r.cmd = cmd; close(started) }
	go func() { r.done <- n.run(t, c) }()
	<-started
	return r
}

// succeeds waits for the end of the call.
func (r *running) succeeds(t *testing.T, what string) {
	t.Helper()
	if a := <-r.done; !a.ok {
		t.Errorf("%s: %d %s", what, a.Code, a.Msg)
	}
}

// kill ends the plugin itself, and waits until it is gone.
func (r *running) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-r.done
}

// waiting waits until a call waits for a lock.
func (n *node) waiting(t *testing.T, lock string) {
	t.Helper()
	sandbox.Until(t, "a call waits for "+lock, func() bool { return n.waits(t, lock) })
}

// waits says whether a call waits for a lock, which is one of the plugin's or any file.
func (n *node) waits(t *testing.T, lock string) bool {
	t.Helper()
	if !filepath.IsAbs(lock) {
		lock = filepath.Join(n.state, "locks", lock)
	}
	return sandbox.Waits(t, lock)
}

// lockDevice holds the lock of v0, as another call does that works on it.
func (n *node) lockDevice(t *testing.T) (unlock func()) {
	t.Helper()
	file := filepath.Join(n.state, "locks", "netdev+v0")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// DEL comes while ADD of the same attachment waits for the device: it waits for ADD, and returns what that has taken.
// It never removes the entry that it has not seen, which alone says what the device was like. There is no IPAM here: an
// ADD that waits for IPAM holds no lock, and this DEL would rightly overtake it.
func TestDelWaitsForAdd(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	conf := confOf("1.1.0", `"device":"v0"`)
	unlock := n.lockDevice(t)
	add := n.start(t, n.call("ADD", conf))
	n.waiting(t, "netdev+v0")
	del := n.start(t, n.call("DEL", conf))
	n.waiting(t, "attachments")
	unlock()
	add.succeeds(t, "ADD")
	del.succeeds(t, "DEL")
	n.same(t, "after ADD and DEL side by side")
}
