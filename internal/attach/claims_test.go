package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// claims are three rails of a pod, of which its container has some.
func claims(taken ...string) *Claims {
	c := &Claims{Fabric: "ib-200g", Pod: "default/p1", PodUID: "7d2c"}
	for i, id := range []string{"0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0"} {
		d := Claimed{Claim: "default/rails", Device: "pci/" + id, ID: id}
		if i < len(taken) {
			d.Taken = taken[i]
		}
		c.Devices = append(c.Devices, d)
	}
	return c
}

func TestChoose(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*Claims)
		want int
		says string // in the refusal; empty: none
	}{
		"first":            {nil, 0, ""},
		"second":           {func(c *Claims) { c.Devices = claims("net1").Devices }, 1, ""},
		"gap":              {func(c *Claims) { c.Devices = claims("net1", "", "net3").Devices }, 1, ""},
		"named":            {func(c *Claims) { c.DeviceID = "0000:86:00.0" }, 2, ""},
		"named by address": {func(c *Claims) { c.DeviceID = "pci/0000:5e:00.0" }, 1, ""},
		"share": {func(c *Claims) {
			for i := range c.Devices {
				c.Devices[i].ID = "0000:3b:00.0"
			}
			c.Devices[0].Taken, c.DeviceID = "net1", "0000:3b:00.0"
		}, 1, ""},
		"named and taken": {func(c *Claims) { *c = *claims("net1"); c.DeviceID = "0000:3b:00.0" }, -1, "is net1"},
		"named, another's": {
			func(c *Claims) { c.DeviceID = "0000:af:00.0" }, -1,
			`device "0000:af:00.0" is none of those of fabric ib-200g`,
		},
		"all taken": {
			func(c *Claims) { *c = *claims("net1", "net2", "net3") }, -1,
			"pod default/p1 has the network ib-200g in its annotation once more",
		},
		"none":       {func(c *Claims) { c.Devices = nil }, -1, "none of its ResourceClaims gives it a device"},
		"kubelet's":  {func(c *Claims) { c.Devices, c.DeviceID = nil, "0000:af:00.0" }, -1, ""},
		"no UID":     {func(c *Claims) { c.PodUID, c.DeviceID = "", "0000:3b:00.0" }, -1, "has no K8S_POD_UID"},
		"bad UID":    {func(c *Claims) { c.BadUID = true }, -1, `value "7d2c" is no UID`},
		"unreadable": {func(c *Claims) { c.Unreadable = errors.New("not JSON") }, -1, "can't be read: not JSON"},
		"no name":    {func(c *Claims) { c.Devices, c.Pod = nil, "" }, -1, `pod of UID "7d2c"`},
		"many": {func(c *Claims) {
			for range 100 {
				c.Devices = append(c.Devices, claims().Devices...)
			}
			for i := range c.Devices {
				c.Devices[i].Taken = fmt.Sprint("net", i)
			}
		}, -1, "and 287 more"},
	} {
		t.Run(name, func(t *testing.T) {
			c := claims()
			if tt.edit != nil {
				tt.edit(c)
			}
			i, r := c.Choose()
			if i != tt.want || (r != nil) != (tt.says != "") {
				t.Fatalf("got %d, %+v", i, r)
			}
			if r == nil {
				return
			}
			if r.Reason != NoDevice || !r.Passing || !strings.Contains(r.Message, tt.says) || len(r.Message) > 2000 {
				t.Errorf("refusal %+v, want %q", r, tt.says)
			}
		})
	}
}
