package nlmsg_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// A pod can add and delete interfaces without end: a dump that is interrupted is taken again, and is complete.
func TestDumpOfChangingList(t *testing.T) {
	const links = 200
	n := sandbox.New(t)
	batch := func(lines string) *exec.Cmd {
		cmd := exec.Command("ip", "-n", n.Name, "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		return cmd
	}
	var add strings.Builder
	for i := range links {
		fmt.Fprintf(&add, "link add b%d type bridge\n", i)
	}
	if out, err := batch(add.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ns, err := netns.Open(n.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var c *nlmsg.Conn
	if err := ns.Do(func() (err error) { c, err = nlmsg.Dial(unix.NETLINK_ROUTE); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	storm := batch(strings.Repeat("link add x type bridge\nlink del x\n", 1_000_000))
	if err := storm.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = storm.Process.Kill(); _ = storm.Wait() }()
	for tries := 0; tries < 10_000; tries++ {
		before := c.Exchanges()
		got, err := c.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
		if err != nil || len(got) < links {
			t.Fatalf("%d links, %v", len(got), err)
		}
		if c.Exchanges() > before+1 { // it was interrupted
			return
		}
	}
	t.Error("no dump was interrupted")
}
