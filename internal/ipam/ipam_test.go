package ipam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// script is a delegate for an IPAM plugin written in sh. It records each call, its command and environment and stdin,
// in the test's directory; body then answers.
func script(t *testing.T, body string) (Delegate, string) {
	t.Helper()
	dir := t.TempDir()
	head := fmt.Sprintf(
		"#!/bin/sh\ncd %s\necho \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS\" >> calls\ncat > "+
			"stdin.$CNI_COMMAND\n",
		dir,
	)
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(head+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return Delegate{
		Type: "fake",
		Conf: []byte(`{"cniVersion":"1.1.0","name":"n","ipam":{"type":"fake"}}`),
		Env: netconf.Env{
			Command:     "ADD",
			ContainerID: "c1",
			IfName:      "net1",
			Netns:       "/n/1",
			Args:        "A=1;B=2",
			Path:        "/nowhere::" + dir,
		},
		Stderr: &bytes.Buffer{},
	}, dir
}

func calls(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var commands []string
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		commands = append(commands, strings.Split(line, " ")[0])
	}
	return strings.Join(commands, " ")
}

const one = `echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}'`

func TestAdd(t *testing.T) {
	d, dir := script(t, `echo said to stderr >&2
echo '{"cniVersion":"0.4.0","interfaces":[{"name":"x"}],"ips":[{"version":"4","interface":0,
"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"version":"6","address":"fd00::2/64"}],
"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400,"table":0}],"dns":{"nameservers":["10.0.0.53"]}}'`)
	t.Setenv("CNI_COMMAND", "DEL") // ours, which the plugin must not see
	t.Setenv("CNI_CONTAINERID", "other")
	got, err := d.Add(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := &result.Result{
		Addresses: []result.Address{
			{
				Prefix:    netip.MustParsePrefix("10.0.0.2/24"),
				Gateway:   netip.MustParseAddr("10.0.0.1"),
				Interface: result.NoInterface,
			},
			{Prefix: netip.MustParsePrefix("fd00::2/64"), Interface: result.NoInterface},
		},
		Routes: []result.Route{
			{
				Dst:     netip.MustParsePrefix("0.0.0.0/0"),
				Gateway: netip.MustParseAddr("10.0.0.1"),
				MTU:     1400,
				Table:   &zero,
			},
		},
		DNS: netconf.DNS{Nameservers: []string{"10.0.0.53"}},
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "calls")); string(log) != "ADD c1 net1 /n/1 A=1;B=2\n" {
		t.Errorf("calls: %q", log)
	}
	if in, _ := os.ReadFile(filepath.Join(dir, "stdin.ADD")); !bytes.Equal(in, d.Conf) {
		t.Errorf("stdin: %q, want what was received", in)
	}
	if b, ok := d.Stderr.(*bytes.Buffer); !ok || b.String() != "said to stderr\n" {
		t.Errorf("stderr passed on: %v", d.Stderr)
	}
}

func TestFailedAddIsFollowedByDel(t *testing.T) {
	for _, tc := range []struct{ name, body, err string }{
		{"CNI error", `echo '{"cniVersion":"1.1.0","code":11,"msg":"try later",` +
			`"details":"lease held"}'; exit 1`, `IPAM plugin "fake": ADD: try later; lease held`},
		{"garbage", `echo hello world`, `answered "hello world\n": decode CNI result`},
		{"silence", `true`, `answered nothing: decode CNI result`},
		{"null", `echo null`, `answered without an address: "null\n"`},
		{"no address", `echo '{"cniVersion":"1.1.0"}'`, "answered without an address"},
		{"error with status 0", `echo '{"code":7,"msg":"no such pool"}'`, `answered without an address: ` +
			`"{\"code\":7,\"msg\":\"no such pool\"}\n"`},
		{"future version", `echo '{"cniVersion":"2.0.0"}'`, `CNI version "2.0.0"`},
		{"status without words", `exit 3`, "exit status 3"},
		{"status and stderr", `echo wait >&2; echo panic: no >&2; exit 2`, `exit status 2; stderr: "wait\npanic: no"`},
		{"much on stderr", `echo panic: first >&2; head -c 3000 /dev/zero | tr '\0' . >&2; echo last >&2; exit 2`,
			`stderr: "panic: first\n` + strings.Repeat(".", 499) + " ... " + strings.Repeat(".", 507) + `last"`},
		{"status and no CNI error", `echo oops; exit 1`, `exit status 1; answered "oops\n", which is no CNI error`},
		{"status and a result", one + `; exit 1`, "which is no CNI error"},
		{"signal", `kill -SEGV $$`, "killed by signal 11 (segmentation fault)"},
		{"huge", `head -c 3000000 /dev/zero | tr '\0' ' '`, "answered with more than 1048576 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, dir := script(t, `[ $CNI_COMMAND = DEL ] && exit 0`+"\n"+tc.body)
			r, err := d.Add(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.err) ||
				!strings.Contains(err.Error(), `IPAM plugin "fake": ADD: `) {
				t.Errorf("error: %v\nwant one with %q", err, tc.err)
			}
			if r != nil {
				t.Errorf("result beside the error: %v", r)
			}
			if got := calls(t, dir); got != "ADD DEL" {
				t.Errorf("calls: %s, want ADD DEL", got)
			}
		})
	}
}

func TestErrorKeepsCode(t *testing.T) {
	d, _ := script(
		t,
		`[ $CNI_COMMAND = ADD ] && code=11 || code=5; echo "{\"code\":$code,\"msg\":\"$CNI_COMMAND failed\"}"; exit 1`,
	)
	_, err := d.Add(t.Context())
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
		t.Errorf("error %v: code of the ADD not found", err)
	}
	if !strings.Contains(err.Error(), "it may still hold addresses") || !strings.Contains(err.Error(), "DEL failed") {
		t.Errorf("error %v does not tell that the DEL failed too", err)
	}
}

func TestNotStarted(t *testing.T) {
	d, dir := script(t, one)
	for name, data := range map[string]string{
		"plain": "no program", "noshebang": "echo\n", "nointerpreter": "#!/no/such\n",
	} {
		mode := os.FileMode(0o755)
		if name == "plain" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ typ, path, err string }{
		{"absent", "/nowhere:" + dir, `"absent" is in none of /nowhere, ` + dir + ` (CNI_PATH); install`},
		{"fake", "", "CNI_PATH is empty"},
		{"sh", ":", "CNI_PATH is empty"}, // an empty element is not $PATH
		{"plain", dir, "plain is no executable file (-rw-r--r--)"},
		{"noshebang", dir, "exec format error"},
		{"nointerpreter", dir, "no such file"},
		{"../fake", dir + "/x", "plain file name"},
		{"/bin/sh", dir, "plain file name"},
		{"..", dir, "plain file name"},
		{".", dir, "plain file name"},
		{"a\x00b", dir, "plain file name"},
	} {
		d.Type, d.Env.Path = tc.typ, tc.path
		for command, call := range map[string]func() error{
			"ADD":    func() error { _, err := d.Add(t.Context()); return err },
			"DEL":    func() error { return d.Del(t.Context()) },
			"CHECK":  func() error { return d.Check(t.Context()) },
			"STATUS": func() error { return d.Status(t.Context()) },
			"GC":     func() error { return d.GC(t.Context(), nil) },
		} {
			if err := call(); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s of %q: error %v\nwant one with %q", command, tc.typ, err, tc.err)
			}
		}
	}
	if got := calls(t, dir); got != "" {
		t.Errorf("calls: %s", got)
	}
}

func TestRelativePath(t *testing.T) {
	d, dir := script(t, one)
	t.Chdir(dir)
	for _, path := range []string{".", "./", "../" + filepath.Base(dir)} {
		d.Env.Path = path
		if _, err := d.Add(t.Context()); err != nil {
			t.Errorf("CNI_PATH %q: %v", path, err)
		}
	}
}

// An installer that writes the plugin in place makes it impossible to run for a moment.
func TestBusy(t *testing.T) {
	d, dir := script(t, one)
	f, err := os.OpenFile(filepath.Join(dir, "fake"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(250*time.Millisecond, func() { f.Close() })
	if _, err := d.Add(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEmptyType(t *testing.T) {
	var d Delegate
	r, err := d.Add(t.Context())
	if err != nil || len(r.Addresses) != 0 {
		t.Errorf("Add: %v, %v", r, err)
	}
	if err := errors.Join(
		d.Del(t.Context()),
		d.Check(t.Context()),
		d.Status(t.Context()),
		d.GC(t.Context(), nil),
	); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	d, dir := script(t, `echo '{"code":100,"msg":"address gone"}'; exit 1`)
	if err := d.Check(
		t.Context(),
	); err == nil ||
		!strings.Contains(err.Error(), `IPAM plugin "fake": CHECK: address gone`) {
		t.Errorf("error: %v", err)
	}
	if got := calls(t, dir); got != "CHECK" {
		t.Errorf("calls: %s", got)
	}
	if err := os.Rename(filepath.Join(dir, "fake"), filepath.Join(dir, "whereabouts")); err != nil {
		t.Fatal(err)
	}
	d.Type = "whereabouts"
	if err := d.Check(t.Context()); err != nil {
		t.Errorf("whereabouts was asked: %v", err)
	}
	if !TypeOf("dhcp").NeedsInterface || TypeOf("static").NeedsInterface {
		t.Error("dhcp alone needs the interface")
	}
}

const hasGC = `if [ $CNI_COMMAND = VERSION ]; then echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0",` +
	`"1.1.0"]}'; exit 0; fi
`

func TestGCAndStatus(t *testing.T) {
	unknown := `echo "{\"code\":4,\"msg\":\"unknown CNI_COMMAND: $CNI_COMMAND\"}"; exit 1`
	old := `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' && exit 0
`
	for _, tc := range []struct {
		name, body, conf string
		gc, status       string // part of the error; empty: none
		asked            bool   // whether the command itself reached the plugin
	}{
		{name: "supported", body: hasGC, asked: true},
		{name: "failing", body: hasGC + `echo '{"code":50,` +
			`"msg":"pool empty"}'; exit 1`, gc: "GC: pool empty", status: "STATUS: pool empty", asked: true},
		{name: "old plugin", body: old + "touch harm", gc: "not supported"},
		{name: "ancient plugin", body: unknown, gc: "not supported"},
		{name: "old command", body: hasGC + unknown, gc: "not supported", asked: true},
		{name: "old configuration", body: hasGC + "touch harm", conf: `{"cniVersion":"0.3.1",` +
			`"name":"n"}`, gc: "not supported"},
		{name: "VERSION fails", body: "exit 9", gc: "exit status 9", status: "exit status 9"},
		{name: "VERSION garbage", body: "echo hi", gc: `VERSION: answered "hi\n"`, status: `VERSION: answered "hi\n"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, dir := script(t, tc.body)
			if tc.conf != "" {
				d.Conf = []byte(tc.conf)
			}
			for command, err := range map[string]error{"GC": d.GC(t.Context(), nil), "STATUS": d.Status(t.Context())} {
				want := map[string]string{"GC": tc.gc, "STATUS": tc.status}[command]
				if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
					t.Errorf("%s: error %v, want %q", command, err, want)
				}
				if errors.Is(err, ErrNotSupported) != (want == "not supported") {
					t.Errorf("%s: error %v matches ErrNotSupported: %v", command, err, errors.Is(err, ErrNotSupported))
				}
				if asked := strings.Contains(calls(t, dir), command); asked != tc.asked {
					t.Errorf("%s reached the plugin: %v", command, asked)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "harm")); err == nil {
				t.Error("a plugin that does not know the command was given it")
			}
		})
	}
}

func TestGCAttachments(t *testing.T) {
	d, dir := script(t, hasGC)
	d.Conf = []byte(
		`{"cniVersion":"1.1.0","name":"n","x":[1.50],"cni.dev/valid-attachments":[{"containerID":"old","ifname":"e"}]}`,
	)
	for _, tc := range []struct {
		valid []netconf.Attachment
		want  string
	}{
		{nil, `[]`},
		{[]netconf.Attachment{{ContainerID: "c1", IfName: "net1"}}, `[{"containerID":"c1","ifname":"net1"}]`},
	} {
		if err := d.GC(t.Context(), tc.valid); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "stdin.GC"))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{
			"cni.dev/valid-attachments": tc.want, "cni.dev/attachments": tc.want, "x": "[1.50]", "name": `"n"`,
		} {
			if string(got[key]) != want {
				t.Errorf("%s: %s, want %s", key, got[key], want)
			}
		}
	}
	for _, conf := range []string{`null`, `[]`, ``} {
		d.Conf = []byte(conf)
		if err := d.GC(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `IPAM plugin "fake": GC: `) {
			t.Errorf("configuration %q: error %v", conf, err)
		}
	}
}
