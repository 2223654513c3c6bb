package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/growth"
)

// FuzzParse looks for a panic, an error without a code, and a Config that breaks a promise of its comments.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no testdata: %v", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, cmd := range []string{"ADD", "DEL", "GC"} {
			f.Add(raw, cmd, "c0ffee", "net1", "/n", "MAC=02:00:00:00:00:01;IP=10.0.0.1")
		}
	}
	f.Add(
		[]byte(conf(`"device":"d","guid":"\ud800","vlan":[{"a":"}"}],"x/y":{"\"":"\\"}`)),
		"CHECK",
		"a",
		"eth%d",
		"n",
		"MAC",
	)
	f.Add([]byte(conf(`"allocation":"DRA","guid":"\u0000","deviceID":"x"`)), "ADD", "a", "n", "/n", "K8S_POD_UID=../x")
	f.Fuzz(func(t *testing.T, stdin []byte, cmd, id, ifName, netns, args string) {
		before := bytes.Clone(stdin)
		env := Env{Command: cmd, ContainerID: id, IfName: ifName, Netns: netns, Args: args}
		c, err := Parse(stdin, env)
		if !bytes.Equal(stdin, before) {
			t.Fatal("stdin was changed")
		}
		if err == nil {
			if err := broken(c, cmd); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(c.Raw, stdin) ||
				cmd != "GC" && cmd != "STATUS" && (strings.ContainsAny(id+ifName, "/\x00") || id == "") {
				t.Fatalf("accepted %q %q", id, ifName)
			}
			by := map[string]json.RawMessage{"mtu": json.RawMessage("1400"), "deviceID": json.RawMessage("null")}
			if over, err := c.Select(env, by); err == nil && !json.Valid(over.Raw) {
				t.Fatalf("no JSON: %s", over.Raw)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || c != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		if e.Code != CodeEnvironment && e.Code != CodeDecode && e.Code != CodeConfig {
			t.Fatalf("code %d: %v", e.Code, err)
		}
		if s := err.Error(); strings.ContainsAny(s, "\n\r\x00\x1b") || len(s) > 900 {
			t.Fatalf("not a line: %q", s)
		}
	})
}

// broken returns what a Config promises and does not keep.
func broken(c *Config, cmd string) error {
	in := func(n *int, low, high int) bool { return n == nil || low <= *n && *n <= high }
	strict := cmd != "DEL" && cmd != "GC"
	set := 0
	for _, is := range []bool{!c.Selector.Address.IsZero(), c.Selector.Kind == ByHWAddr, c.Selector.Kind == ByGUID} {
		if is {
			set++
		}
	}
	for what, ok := range map[string]bool{
		"mode":     c.Mode == ModeDevice || c.Mode == ModeIPoIB || c.Mode == ModeRDMA,
		"rdma":     c.RDMA == RDMAAuto || c.RDMA == RDMAExclusive || c.RDMA == RDMAShared || c.RDMA == RDMANone,
		"name":     isID(c.Name) || !strict && c.Name == "",
		"type":     isID(c.Type) || !strict && c.Type == "",
		"ipam":     c.IPAM.Type == "" || isID(c.IPAM.Type),
		"mtu":      c.MTU == 0 || 68 <= c.MTU && c.MTU <= 65520,
		"vlan":     in(c.VF.VLAN, 0, 4094) && in(c.VF.VLANQoS, 0, 7) && (c.VF.VLAN == nil) == (c.VF.VLANProto == ""),
		"rates":    in(c.VF.MinTxRate, 0, 1<<31-1) && in(c.VF.MaxTxRate, 0, 1<<31-1),
		"VF mode":  c.Mode == ModeDevice || reflect.DeepEqual(c.VF, VF{}),
		"VF GUID":  c.VF.GUID == nil || !c.VF.GUID.IsUnset(),
		"master":   (c.Mode == ModeIPoIB || c.Master == "") && (c.Master == "" || isName(c.Master)),
		"pkey":     c.PKey == 0 || c.Mode != ModeRDMA && c.PKey&0x7fff != 0,
		"rdmaName": c.RDMAName == "" || isRDMAName(c.RDMAName) && c.Mode != ModeIPoIB,
		"selector": set <= 1 && (c.Selector.Kind == ByNothing) == (c.Selector.Value == "") &&
			(c.Mode != ModeIPoIB || c.Selector.Kind == ByNothing),
		"needed": cmd != "ADD" || c.Selector.Kind != ByNothing || c.Master != "" || c.FromClaim ||
			c.Mode == ModeRDMA && c.PrevResult != nil,
		"path": c.Selector.Kind != ByKernelPath ||
			strings.HasPrefix(filepath.Clean(c.Selector.Value), "/sys/devices/"),
		"gc":   cmd == "GC" || c.ValidAttachments == nil,
		"log":  c.LogFile == "" || filepath.IsAbs(c.LogFile),
		"prev": c.PrevResult == nil || c.PrevResult[0] == '{',
	} {
		if !ok {
			return fmt.Errorf("%s of %+v", what, c)
		}
	}
	return nil
}

// TestHostileSize makes sure that the largest stdin takes time in proportion to its size, whatever is in it.
func TestHostileSize(t *testing.T) {
	for unit, text := range map[string]string{
		`"a/b":1,`:    `%s"device":"d"`,
		`"q":1,`:      `%s"device":"d"`,
		`"10.0.0.1",`: `"device":"d","runtimeConfig":{"ips":[%s"10.0.0.2"]}`,
		`\u0041`:      `"device":"%s"`,
	} {
		growth.Linear(t, unit, maxStdin/4, func(n int) {
			stdin := conf(fmt.Sprintf(text, strings.Repeat(unit, n/len(unit)-20)))
			if len(stdin) > maxStdin {
				t.Fatalf("%d bytes", len(stdin))
			}
			_, _ = Parse([]byte(stdin), envADD)
		})
	}
}

func BenchmarkParse(b *testing.B) {
	raw, err := os.ReadFile("testdata/fabric-full.json")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(raw, envADD); err != nil {
			b.Fatal(err)
		}
	}
}
