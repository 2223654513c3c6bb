package ipam

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The built-in plugins answer as their executables do: the same result or error, byte by byte, and the same files.
func TestSameAsExecutable(t *testing.T) {
	bin := plugins(t)
	for typ, list := range map[string][]sameCase{"static": sameStatic, "host-local": sameHostLocal} {
		for _, c := range slices.Concat(list, sameAny) {
			if typ == "static" {
				c.ipam = strings.ReplaceAll(c.ipam, `"subnet":"10.4.0.0/24"`, `"addresses":[]`)
			}
			versions := []string{"1.1.0"}
			if c.all {
				versions, c.steps = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}, cycle
			}
			for _, v := range versions {
				t.Run(typ+"/"+c.name+"/"+v, func(t *testing.T) {
					t.Parallel()
					own, their := play(t, c, typ, v, ""), play(t, c, typ, v, bin)
					if diff := cmp.Diff(their, own); diff != "" {
						t.Errorf("-executable +built in:\n%s", diff)
					}
				})
			}
		}
	}
}

// play carries out the steps of a case, built in or, with a directory, as executables. It returns what each of them
// answered, and the files that there are at the end.
func play(t *testing.T, c sameCase, typ, version, bin string) (out []string) {
	t.Helper()
	dir := t.TempDir()
	const resolv = "# comment\n; too\nnameserver 10.0.0.53 # not a comment\nsearch a b\ndomain c\n" +
		"options d:1 e\nshort\n\n"
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(resolv), 0o600); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.ipam, "dataDir") && typ == "host-local" {
		c.ipam += `,"dataDir":"DIR/data"`
	}
	conf := c.conf
	if c.ipam != "" && !strings.HasPrefix(c.ipam, ",") {
		conf = `{"cniVersion":"VERSION","name":"n","type":"fabric","ipam":{"type":"TYPE",` + c.ipam + `}` + conf + `}`
	}
	conf = strings.NewReplacer("DIR", dir, "VERSION", version, "TYPE", typ).Replace(conf)
	d := Delegate{Type: typ, Conf: []byte(conf), Env: netconf.Env{Path: "/nowhere"}, Policy: allow(dir)}
	for _, step := range strings.Fields(stdcmp.Or(c.steps, short)) {
		command, who, _ := strings.Cut(step, "/")
		e := env("/nowhere", "c"+who, "net1")
		e.Command, e.Args = command, c.args
		if who == "-" {
			e.ContainerID, e.Netns, e.IfName = "", "", ""
		}
		var answer []byte
		var err error
		if bin == "" {
			answer, err = d.call(t.Context(), command, e, d.Conf)
		} else {
			answer, err = d.run(t.Context(), filepath.Join(bin, typ), e, d.Conf)
		}
		text := fmt.Sprintf("%s: %s", step, answer)
		var own *types.Error
		if errors.As(err, &own) {
			text += fmt.Sprintf("code %d: %v", own.Code, err)
		} else if err != nil {
			text += fmt.Sprintf("no CNI error: %v", err)
		}
		// The decoder names Go types with their package.
		text = regexp.MustCompile(`\b(main|static|allocator|hostlocal|ip)\.([A-Z])`).ReplaceAllString(text, "$2")
		out = append(out, strings.ReplaceAll(text, dir, "DIR"))
	}
	return append(out, files(t, dir)...)
}

// allow is a policy under which host-local may work in a directory of the test, or in data below it.
func allow(dir string) *policy.Policy {
	return &policy.Policy{
		IPAMDirs: []string{dir, dir + "/data", dir + "/resolv.conf"}, IPAMConfDirs: []string{dir},
	}
}

// files lists what is below a directory, with modes and contents.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == dir {
			return err
		}
		line := fmt.Sprintf("%s %s", strings.TrimPrefix(path, dir), info.Mode())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", b)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Built-in plugins and executables work in one directory at the same time: no address is given twice, and each releases
// what the other has reserved.
func TestTogetherWithExecutable(t *testing.T) {
	const each = 20
	bin, data := plugins(t), t.TempDir()
	conf := fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","type":"fabric","ipam":{"type":"host-local",`+
		`"dataDir":%q,`+
		`"subnet":"10.4.0.0/24","rangeEnd":"10.4.0.100"}}`, data)
	before := os.Environ()
	call := func(i int, command string, executed bool) ([]byte, error) {
		d := Delegate{Type: "host-local", Conf: conf, Policy: allow(data)}
		e := env(bin, fmt.Sprint("c", i), "net1")
		e.Command = command
		if executed {
			return d.run(context.Background(), filepath.Join(bin, "host-local"), e, conf)
		}
		return d.call(context.Background(), command, e, conf)
	}
	given := make([]string, 4*each)
	var wg sync.WaitGroup
	for i := range given {
		wg.Go(func() {
			out, err := call(i, "ADD", i%2 == 0)
			var r struct{ IPs []struct{ Address string } }
			if err = errors.Join(err, json.Unmarshal(out, &r)); err != nil || len(r.IPs) != 1 {
				t.Errorf("%d: %s, %v", i, out, err)
				return
			}
			given[i] = r.IPs[0].Address
		})
	}
	wg.Wait()
	if n := len(slices.Compact(slices.Sorted(slices.Values(given)))); n != len(given) || held(t, data) != n {
		t.Errorf("%d different addresses for %d attachments, %d held: %q", n, len(given), held(t, data), given)
	}
	_, err := call(0, "ADD", false)
	if err == nil || !strings.Contains(err.Error(), "duplicate allocation is not allowed") {
		t.Errorf("second ADD of an attachment that the executable has added: %v", err)
	}
	for i := range given { // each is released by the other
		wg.Go(func() {
			if _, err := call(i, "DEL", i%2 != 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := held(t, data); n != 0 {
		t.Errorf("%d addresses held, want none", n)
	}
	if after := os.Environ(); !slices.Equal(before, after) {
		t.Errorf("environment changed: %q", after)
	}
}

// A call that is killed after it has made the file of an address, and before it has written whose it is, leaves an
// address that no pod has: the next DEL frees it. Other files stay.
func TestAddressWithoutOwner(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, "n")
	d := Delegate{
		Type:   "host-local",
		Env:    env("/nowhere", "c1", "net1"),
		Policy: allow(data),
		Conf: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","ipam":{"type":"host-local","dataDir":%q,`+
			`"subnet":"10.4.0.0/24"}}`, data),
	}
	if _, err := d.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"10.4.0.3": "", "fd00::3": "", "notes": "", "10.4.0.4": "c2\r\nnet1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Del(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"10.4.0.4", "last_reserved_ip.0", "lock", "notes"}; !slices.Equal(left, want) {
		t.Errorf("%v is left, want %v", left, want)
	}
}

// A process that holds the lock of the directory can't make a call wait for longer than its context.
func TestLockedDirectory(t *testing.T) {
	data := t.TempDir()
	d := Delegate{
		Type:   "host-local",
		Env:    env("/nowhere", "c1", "net1"),
		Policy: allow(data),
		Conf: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","ipam":{"type":"host-local","dataDir":%q,`+
			`"subnet":"10.4.0.0/24"}}`, data),
	}
	if _, err := d.Add(t.Context()); err != nil { // makes the directory
		t.Fatal(err)
	}
	if err := d.Del(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(data, "n", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for command, call := range map[string]func(context.Context) error{
		"ADD": func(ctx context.Context) error { _, err := d.add(ctx); return err }, "DEL": d.Del, "CHECK": d.Check,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), command+": did not answer in time") {
			t.Errorf("%s: %v", command, err)
		}
	}
	time.AfterFunc(50*time.Millisecond, func() { f.Close() })
	if r, err := d.Add(t.Context()); err != nil || r.Addresses[0].Prefix != netip.MustParsePrefix("10.4.0.3/24") {
		t.Errorf("%+v, %v", r, err)
	}
	given, err := hostlocal.Given(filepath.Join(data, "n"))
	if n := len(given); err != nil || n != 1 || n != held(t, data) {
		t.Errorf("%d addresses held, want 1: a call that gave up must not reserve one later", n)
	}
}

// A configuration with a key that the built-in plugin does not know goes to the executable, for every command.
func TestUnknownKey(t *testing.T) {
	for typ, sections := range map[string][]string{
		"host-local": {
			`"subnet":"10.4.0.0/24","exclude":["10.4.0.9"]`, `"ranges":[[{"subnet":"10.4.0.0/24","exclude":[]}]]`,
			`"subnet":"10.4.0.0/24","routes":[{"dst":"0.0.0.0/0","onlink":true}]`,
		},
		"static": {`"addresses":[{"address":"10.0.0.5/24","lifetime":5}]`, `"addresses":[],"dns":{` +
			`"server":"x"}`, `"sysctl":{}`},
	} {
		for _, section := range sections {
			d, dir := script(t, hasGC+one)
			d.Type, d.Conf = typ, fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"n","ipam":{"type":%q,`+
				`%s}}`, typ, section)
			want := regexp.MustCompile(`the built-in ` + typ + ` does not know the key ipam\.\S+$`)
			if _, err := d.Add(t.Context()); !errors.Is(err, ErrNotStarted) || !want.MatchString(err.Error()) {
				t.Errorf("%s: %v", section, err)
			}
			if err := os.Rename(filepath.Join(dir, "fake"), filepath.Join(dir, typ)); err != nil {
				t.Fatal(err)
			}
			_, err := d.Add(t.Context())
			err = errors.Join(err, d.Check(t.Context()), d.Del(t.Context()))
			err = errors.Join(err, d.Status(t.Context()), d.GC(t.Context(), nil))
			if got := calls(t, dir); err != nil || got != "ADD CHECK DEL VERSION STATUS VERSION GC" {
				t.Errorf("%s: calls %s, %v", section, got, err)
			}
		}
	}
}

// What would end the executable's process is an error, and does not end this one.
func TestPanic(t *testing.T) {
	b := &builtin{del: func(context.Context, netconf.Env, []byte) error { panic("no route") }}
	e := env("/nowhere", "c1", "net1")
	e.Command = "DEL"
	if out, err := b.run(t.Context(), e, []byte(`{"name":"n"}`)); err == nil || err.Error() != "panic: no route" {
		t.Errorf("%s, %v", out, err)
	}
}

// Case does not matter to a JSON decoder, and any key may be there in its section.
func TestKnownKeys(t *testing.T) {
	for typ, section := range map[string]string{
		"host-local": `"Subnet":"10.4.0.0/24","RANGESTART":null,"rangeEnd":null,"gateway":null,"routes":[{` +
			`"dst":"0.0.0.0/0","gw":null,"mtu":0,"advmss":0,` +
			`"priority":0,"table":0,"scope":0}],"dataDir":"/nowhere","resolvConf":"","ranges":[[{` +
			`"subnet":"10.5.0.0/24","rangeStart":null}]],"name":"x"`,
		"static": `"addresses":[{"address":"10.0.0.5/24","gateway":null}],"routes":[],"dns":{"nameservers":[],` +
			`"domain":"","search":[],"options":[]}`,
	} {
		d := Delegate{Type: typ, Conf: fmt.Appendf(nil, `{"x":{"y":1},"ipam":{"type":%q,%s}}`, typ, section)}
		if b, key := d.builtin(); b == nil {
			t.Errorf("%s: %s is unknown", typ, key)
		}
	}
	if b, _ := (Delegate{Type: "dhcp"}).builtin(); b != nil {
		t.Error("dhcp is built in")
	}
}

// Predict returns what ADD gives next, and changes nothing.
func TestPredict(t *testing.T) {
	data := t.TempDir()
	for _, ipam := range []string{
		`"host-local","dataDir":%q,"ranges":[[{"subnet":"10.4.0.0/29"}],[{"subnet":"fd00::/64"}]],"routes":[{` +
			`"dst":"0.0.0.0/0"}]`,
		`"static","name":%q,"addresses":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}],"routes":[{` +
			`"dst":"0.0.0.0/0"}]`,
	} {
		for i := range 3 {
			d := Delegate{Env: env("/nowhere", fmt.Sprint("c", i), "net1"), Policy: allow(data), Conf: fmt.Appendf(nil,
				`{"cniVersion":"0.3.1","name":"n","ipam":{"type":`+ipam+`}}`, data)}
			d.Type, _, _ = strings.Cut(ipam[1:], `"`)
			before := files(t, data)
			want, known, err := d.Predict()
			if err != nil || !known {
				t.Fatalf("%s: %v, %v", ipam, known, err)
			}
			if diff := cmp.Diff(before, files(t, data)); diff != "" {
				t.Errorf("%s: files changed:\n%s", ipam, diff)
			}
			got, err := d.Add(t.Context())
			if diff := cmp.Diff(want, got, compare); err != nil || diff != "" {
				t.Errorf("%s: %v, -predicted +given:\n%s", ipam, err, diff)
			}
		}
	}
	d := Delegate{Type: "host-local", Conf: []byte(`{"name":"n","ipam":{"subnet":"10.4.0.0/31"}}`)}
	_, _, err := d.Predict()
	if err == nil || !strings.Contains(err.Error(), `IPAM plugin "host-local": invalid range set 0`) {
		t.Errorf("%v", err)
	}
	d.Type = "whereabouts"
	if _, known, err := d.Predict(); known || err != nil {
		t.Errorf("whereabouts: %v, %v", known, err)
	}
}
