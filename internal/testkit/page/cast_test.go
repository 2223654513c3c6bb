package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/page"
)

// A recording has what the reader types, on which node, and what is printed, with its time. Of a command that was
// repeated it has the last answer.
func TestCast(t *testing.T) {
	w, _ := walker(t, map[string][]string{
		"kubectl get nodes": {"NAME AGE\n", "NAME  AGE\nlab1  5s\n"},
		"rdma system":       {"netns exclusive <on>"},
	})
	blocks, err := page.Parse("<!-- walk: begin -->\n"+
		"<!-- walk: run -->\n```\n$ kubectl get nodes\nNAME AGE\ngpu-1 12d\n```\n"+
		"<!-- walk: file a.yaml -->\n```\nkind: Fabric\n```\n"+
		"<!-- walk: run, on gpu-1 -->\n```\nrdma system\n```\n<!-- walk: end -->\n", "")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	clock := time.Unix(1700000000, 0)
	now := func() time.Time { clock = clock.Add(1250 * time.Millisecond); return clock }
	if w.Cast, err = page.NewCast(&out, "Steps", now); err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := w.Walk(&blocks[i]); err != nil {
			t.Error(err)
		}
	}
	want := `{"height":36,"idle_time_limit":2,"timestamp":1700000001,"title":"Steps","version":2,"width":132}
[1.25,"o","$ kubectl get nodes\r\n"]
[2.5,"o","NAME  AGE\r\nlab1  5s\r\n"]
[3.75,"o","$ cat a.yaml\r\n"]
[5,"o","kind: Fabric\r\n"]
[6.25,"o","lab1# rdma system\r\n"]
[7.5,"o","netns exclusive <on>\r\n"]
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
