package fabric_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// A hardware address, or an address that the configuration itself gives, that is in use on the node, is refused.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i, name := range []string{"w0", "x0"} {
		n.host.Veth(t, name, n.far, "far"+name)
		mac := []string{"02:00:00:00:00:11", "02:00:00:00:00:12"}[i]
		n.host.IP(t, "link", "set", name, "down")
		n.host.IP(t, "link", "set", name, "address", mac)
		n.host.IP(t, "link", "set", name, "up")
		sandbox.Until(t, "it has the link-local address of that", func() bool {
			return strings.Contains(n.host.IP(t, "-6", "addr", "show", "dev", name), "fe80::ff:fe00:1")
		})
	}
	n.host.Settled(t)
	n.before = n.host.State(t)
	const ip = `"ipam":{"type":"static","addresses":[{"address":"192.168.20.7/24"},{"address":"fd00:20::7/64"}]}`
	first := n.call("ADD", confOf("1.1.0", `"device":"v0","mac":"02:00:00:00:00:10"`, ip))
	n.must(t, first)
	second := func(fields ...string) call {
		return call{command: "ADD", id: "c2", ifName: "net2", netns: n.pod.Path,
			conf: confOf("1.1.0", append(fields, `"device":"w0"`)...)}
	}
	for name, tt := range map[string]struct {
		fields []string
		want   string
	}{
		"MAC of a pod": {[]string{`"mac":"02:00:00:00:00:10"`}, "02:00:00:00:00:10 is in use by container c1"},
		"MAC of the host": {
			[]string{`"mac":"02:00:00:00:00:12"`}, "02:00:00:00:00:12 is in use by interface x0 of the host",
		},
		"address": {
			[]string{`"ipam":{"type":"static","addresses":[{"address":"192.168.20.7/16"}]}`},
			"192.168.20.7 is in use by container c1",
		},
		"IPv6 address": {
			[]string{`"ipam":{"type":"static","addresses":[{"address":"fd00:20:0::7/64"}]}`},
			"fd00:20::7 is in use by container c1",
		},
		"address of the runtime": {
			[]string{`"ipam":{"type":"static"},"runtimeConfig":{"ips":["192.168.20.7/24"]}`},
			"192.168.20.7 is in use by container c1",
		},
	} {
		a := n.run(t, second(tt.fields...))
		if a.ok || a.Code != 101 || !strings.Contains(a.Msg, tt.want) {
			t.Errorf("%s: %+v; want %s", name, a, tt.want)
		}
		status := second(tt.fields...)
		status.command, status.id, status.ifName, status.netns = "STATUS", "", "", ""
		// What a pod has is no reason against the node.
		if a := n.run(t, status); a.ok != (name != "MAC of the host") {
			t.Errorf("STATUS, %s: %+v", name, a)
		}
	}
	for name, fields := range map[string][]string{
		"its own MAC":   {`"mac":"02:00:00:00:00:11"`},
		"others":        {`"mac":"02:00:00:00:00:13"`, strings.ReplaceAll(ip, "::7", "::8") + ` `},
		"other network": {ip, `"name":"other"`},
	} {
		c := second(fields...)
		switch name {
		case "others":
			c.conf = strings.ReplaceAll(c.conf, "20.7/", "20.8/")
		case "other network":
			c.conf = strings.Replace(c.conf, `"name":"rail",`, "", 1)
		}
		n.must(t, c)
		c.command = "DEL"
		if a := n.run(t, c); !a.ok {
			t.Errorf("%s: DEL: %+v", name, a)
		}
	}
	first.command = "DEL"
	n.must(t, first)
	n.same(t, "after DEL")
	c := second(`"mac":"02:00:00:00:00:10"`, ip) // the pod has given them back
	n.must(t, c)
	c.command = "DEL"
	n.must(t, c)
	n.same(t, "after DEL of the second")
}

// Of two ADDs at once that find an address free, one gets it.
func TestDuplicatesAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.host.Veth(t, "w0", n.far, "w1")
	n.host.Settled(t)
	n.before = n.host.State(t)
	for round, field := range []string{
		`"mac":"02:00:00:00:00:10"`, static, `"mac":"02:00:00:00:00:10"`, static, `"mac":"02:00:00:00:00:10"`, static,
	} {
		var answers [2]answer
		var calls [2]call
		var done sync.WaitGroup
		for i, dev := range []string{"v0", "w0"} {
			calls[i] = call{command: "ADD", id: "c" + dev, ifName: "net" + dev, netns: n.pod.Path,
				conf: confOf("1.1.0", `"device":"`+dev+`"`, field)}
			done.Go(func() { answers[i] = n.run(t, calls[i]) })
		}
		done.Wait()
		if answers[0].ok == answers[1].ok || answers[0].Code+answers[1].Code != 101 {
			t.Errorf("round %d: %+v and %+v", round, answers[0], answers[1])
		}
		for _, c := range calls {
			c.command = "DEL"
			n.must(t, c)
		}
		n.same(t, "after DEL")
	}
}
