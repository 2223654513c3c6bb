// Package kubectl says what went wrong when kubectl failed: its standard error has one sentence that matters, between
// lines of its own log. It is pure.
package kubectl

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// logged is a line of klog, in which the libraries of kubectl talk to its developers: E1122 22:34:11.970362 24522
// memcache.go:265] "Unhandled Error" err="...".
var logged = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\] (.*)$`)

// quotedError is the error in such a line since Kubernetes 1.31, where it is a Go string.
var quotedError = regexp.MustCompile(`err=("(?:[^"\\]|\\.)*")`)

// prompt is what kubectl prints where the kubeconfig has no credentials.
var prompt = regexp.MustCompile(`Please enter (Username|Password): `)

// cures are what to do, by what a sentence begins with and has in it: a webhook that does not answer is not the API
// server. The first one counts.
var cures = []struct{ begin, part, cure string }{
	{"The connection to the server localhost:8080", "refused",
		"kubectl knows no cluster: set KUBECONFIG, or write ~/.kube/config"},
	{"", "invalid configuration: no configuration has been provided",
		"kubectl knows no cluster: set KUBECONFIG, or write ~/.kube/config"},
	{"The connection to the server", "refused",
		"the API server does not answer at the address that kubectl config view --minify shows"},
	{unable, "no such host", "nobody knows the name of the API server that kubectl config view --minify shows"},
	{unable, "i/o timeout", silent},
	{unable, "context deadline exceeded", silent},
	{unable, "Client.Timeout exceeded", silent},
	{unable, "certificate has expired", "renew the certificate (kubeadm certs check-expiration), or get a new " +
		"kubeconfig"},
	{unable, "certificate signed by unknown authority", "the kubeconfig is of another cluster, or of an earlier one"},
	{unable, "getting credentials: exec", "the program that the kubeconfig names for credentials failed, or is not " +
		"in PATH"},
	{asks, "", "the kubeconfig has none for this cluster: kubectl config view --minify"},
	{"error: You must be logged in", "", "the credentials of the kubeconfig have expired, or are of another cluster"},
	{"", "context was not found", "kubectl config get-contexts lists them"},
	{"error: stat ", "no such file", "KUBECONFIG names a file that is not there"},
}

const (
	unable = "Unable to connect to the server"
	silent = "the API server does not answer: network, VPN or proxy; kubectl config view --minify shows its address"
	asks   = "kubectl asks for a user: it has no credentials"
)

// Logged reports whether a line is of the log of kubectl's libraries, and not what kubectl says.
func Logged(line string) bool { return logged.MatchString(strings.TrimSpace(line)) }

// Unreached is the sentence of Fault if kubectl has not got as far as the cluster; else it is empty. What a command
// in a pod has printed stands beside what kubectl says.
func Unreached(output string) string {
	if text := Fault(output); cure(text) != "" {
		return text
	}
	return ""
}

// cure is what to do about a sentence, if that is known.
func cure(text string) string {
	for _, c := range cures {
		if text != "" && strings.HasPrefix(text, c.begin) && strings.Contains(text, c.part) {
			return c.cure
		}
	}
	return ""
}

// Fault is the sentence of what kubectl has printed on standard error that says why it failed, with what to do where
// that is known. It is empty if kubectl has said nothing.
func Fault(stderr string) string {
	said, thought, asked := "", "", prompt.MatchString(stderr)
	for line := range strings.Lines(prompt.ReplaceAllString(stderr, "")) {
		line = strings.TrimSpace(line)
		if m := logged.FindStringSubmatch(line); m != nil {
			thought = cmp.Or(thought, errorOf(m[1]))
			continue
		}
		if strings.HasPrefix(line, "Warning: ") { // of the API server, about something that it has done
			continue
		}
		said = cmp.Or(said, line)
	}
	if asked {
		said = asks
	}
	text := strings.TrimSuffix(cmp.Or(said, thought), ".")
	text = strings.TrimSuffix(text, " - did you specify the right host or port?") // the cure is better
	if c := cure(text); c != "" {
		return text + ": " + c
	}
	return text
}

// errorOf is the error in a message of klog.
func errorOf(message string) string {
	if m := quotedError.FindStringSubmatch(message); m != nil {
		if text, err := strconv.Unquote(m[1]); err == nil {
			return text
		}
	}
	return message
}
