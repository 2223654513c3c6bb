package kubectl

import (
	"strings"
	"testing"
)

// What kubectl 1.32 and others print. One sentence is left, and it says what to do.
func TestFault(t *testing.T) {
	const memcache = `E1122 22:34:11.970362   24522 memcache.go:265] "Unhandled Error" err="couldn't get current ` +
		`server API group list: Get \"http://localhost:8080/api?timeout=32s\": dial tcp 127.0.0.1:8080: connect: ` +
		`connection refused"` + "\n"
	const before131 = `E0120 11:23:24.665782 6485 memcache.go:238] couldn't get current server API group list: Get ` +
		`"https://10.0.0.1:6443/api?timeout=32s": dial tcp 10.0.0.1:6443: i/o timeout` + "\n"
	for _, c := range []struct{ name, stderr, want string }{
		{"nothing", "", ""},
		{"no cluster", strings.Repeat(memcache, 5) + "The connection to the server localhost:8080 was refused - did " +
			"you specify the right host or port?\n", "The connection to the server localhost:8080 was refused: " +
			"kubectl knows " +
			"no cluster: set KUBECONFIG, or write ~/.kube/config"},
		{"API server away", strings.Repeat(memcache, 5) + "The connection to the server 10.0.0.1:6443 was refused - " +
			"did you specify the right host or port?\n", "The connection to the server 10.0.0.1:6443 was refused: " +
			"the API " +
			"server does not answer at the address that kubectl " +
			"config view --minify shows"},
		{"only the log", memcache, `couldn't get current server API group list: Get "http://localhost:8080/api?` +
			`timeout=32s": dial tcp 127.0.0.1:8080: connect: connection refused`},
		{"timeout", before131 + "Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout\n",
			"Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout: the API server does not answer: " +
				"network, VPN or proxy; kubectl config view --minify shows its address"},
		{"credentials", "Please enter Username: error: EOF\n", "kubectl asks for a user: it has no credentials: the " +
			"kubeconfig has none for this cluster: kubectl config view --minify"},
		{"no kubeconfig", "error: stat /nonexistent: no such file or directory\n",
			"error: stat /nonexistent: no such file or directory: KUBECONFIG names a file that is not there"},
		{"context", "Error in configuration: context was not found for specified context: nope\n",
			"Error in configuration: context was not found for specified context: nope: kubectl config get-contexts " +
				"lists them"},
		{"right", "Warning: v1 is deprecated\nError from server (Forbidden): pods is forbidden: User \"x\" cannot " +
			"list\n", "Error from server (Forbidden): pods is forbidden: User \"x\" cannot list"},
		{"two sentences", "Error from server: one\nError from server: two\n", "Error from server: one"},
		{"a webhook", "Error from server (InternalError): failed calling webhook: context deadline exceeded\n",
			"Error from server (InternalError): failed calling webhook: context deadline exceeded"},
		{"not klog", "E1122 is no log\n", "E1122 is no log"},
	} {
		if got := Fault(c.stderr); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if got := Unreached(c.stderr); got != "" && got != c.want || got == "" && strings.Contains(c.want, "kubectl "+
			"config") {
			t.Errorf("%s: unreached: %s", c.name, got)
		}
	}
}
