package inventory

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// The network namespace of the whole test binary is used: sysfs shows no other.
func TestUppers(t *testing.T) {
	conn, err := link.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := &Reader{Sys: os.DirFS("/sys"), Link: conn}
	for _, c := range []string{
		"link add up0 type veth peer name up1",
		"link add upbr type bridge", "link set up0 master upbr",
		"link add link upbr upmv type macvlan", "link add upvx type vxlan id 7 dstport 4789 dev upbr",
	} {
		sandbox.Run(t, "ip", strings.Fields(c)...)
	}
	t.Cleanup(func() {
		for _, n := range []string{"upvx", "upmv", "upbr", "up0"} {
			sandbox.Run(t, "ip", "link", "del", n)
		}
	})
	n, err := conn.ByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	n.Name = "before-udev"
	list, err := r.Uppers(n)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range list {
		below, err := conn.ByIndex(u.On)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, u.Kind+" "+u.Name+" on "+below.Name)
	}
	want := []string{"bridge upbr on up0", "macvlan upmv on upbr", "vxlan upvx on upbr"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	peer, err := conn.ByName("up1")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := r.Uppers(peer); err != nil || len(list) > 0 {
		t.Errorf("a peer is no upper: %v, %v", list, err)
	}
}
