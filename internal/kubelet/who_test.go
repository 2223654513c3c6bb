package kubelet

import (
	"fmt"
	"strings"
	"testing"
)

const shared = `{"PodUID":"s","ContainerName":"{\"PodUID\":\"forged\"","ResourceName":"fabric.dev/sh",` +
	`"DeviceIDs":{"0":["0000:1a:00.0-share-3","0000:1a:00.1-share-0"]},"AllocResp":""},`

func TestWho(t *testing.T) {
	text := strings.Replace(recorded, `{"PodUID"`, shared+`{"PodUID"`, 1)
	for _, c := range []struct {
		pod, id string
		want    string
	}{
		{"7d2c-2", "0000:3b:00.0", "7d2c-2 fabric.dev/ib-200g 1, 7d2c-1 fabric.dev/ib-200g 3"},
		{"7d2c-1", "0000:3b:00.0", "7d2c-1 fabric.dev/ib-200g 3, 7d2c-1 fabric.dev/ib-200g 1, 7d2c-1 nvidia.com/gpu 1"},
		{"", "0000:d8:00.0", "7d2c-2 fabric.dev/ib-200g 1"}, // and not that it is registered
		{"x", "0000:1a:00.0", "s fabric.dev/sh 2"},
		{"s", "", "s fabric.dev/sh 2"},
		{"x", "0000:1a:00", ""},
		{"x", "0000:00:00.0", ""},
		{"forged", "7d2c-1", ""},
	} {
		all, err := who([]byte(text), c.pod, []string{c.id})
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, h := range all {
			got = append(got, fmt.Sprint(h.PodUID, " ", h.Resource, " ", len(h.IDs)))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if _, err := who([]byte(`{}`), "", []string{"a"}); err == nil {
		t.Error("another layout is read")
	}
	if all, err := Who(t.TempDir(), "p", []string{"a"}); all != nil || err != nil {
		t.Errorf("no file: %v, %v", all, err)
	}
}

func BenchmarkWho(b *testing.B) {
	dir := large(b, 200)
	for b.Loop() {
		all, err := Who(dir, "x", []string{"pci/0000:86:00.9", "0000:86:00.9"})
		if err != nil || all != nil {
			b.Fatal(all, err)
		}
	}
}

// Whatever the file has: an error, or what is asked for.
func FuzzWho(f *testing.F) {
	f.Add(recorded, "7d2c-1", "0000:d8:00.0")
	f.Fuzz(func(t *testing.T, text, uid, id string) {
		all, err := who([]byte(text), uid, []string{id})
		for _, h := range all {
			e := entry{DeviceIDs: map[string][]string{"": h.IDs}}
			if err != nil || h.PodUID != uid && !e.has([]string{id}) {
				t.Errorf("%+v, %v", h, err)
			}
		}
	})
}
