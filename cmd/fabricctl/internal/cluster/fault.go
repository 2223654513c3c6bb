package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/exec"
)

// fault is an error with what was asked, why it failed, and what to do about that where it is known.
func (c *Cluster) fault(t target, err error) error {
	if err == nil || errors.As(err, new(exec.CodeExitError)) {
		return err
	}
	if apierrors.IsNotFound(err) && t.verb == "list" || apierrors.IsNotFound(err) && t.of.Version == "" {
		return fmt.Errorf("%v: %w", t, ErrNotServed)
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // the address is in it, or below
	}
	if text := c.cure(t, err); text != "" {
		return fmt.Errorf("%v: %w: %s", t, err, text)
	}
	return fmt.Errorf("%v: %w", t, err)
}

// cure is what to do about an error.
func (c *Cluster) cure(t target, err error) string {
	host := ""
	if c.config != nil {
		host = c.config.Host
	}
	var dns *net.DNSError
	var dial *net.OpError
	var timeout net.Error
	var invalid x509.CertificateInvalidError
	switch {
	case clientcmd.IsEmptyConfig(err):
		return "set KUBECONFIG or --kubeconfig, or write ~/.kube/config"
	case clientcmd.IsContextNotFound(err), c.client == nil && c.overrides.CurrentContext != "":
		return "kubectl config get-contexts lists them"
	case errors.Is(err, fs.ErrNotExist) && c.client == nil:
		return "--kubeconfig, or what the kubeconfig names, is not there"
	case c.client == nil: // it was not opened
		return "the kubeconfig is wrong"
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the role lacks the verb %s on %s", t.verb, strings.TrimSuffix(t.of.GroupResource().String()+
			"/"+t.sub, "/"))
	case apierrors.IsUnauthorized(err):
		return "the credentials of the kubeconfig have expired, or are of another cluster"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate (kubeadm certs check-expiration), or get a new kubeconfig"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "the kubeconfig is of another cluster, or of an earlier one"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no name server knows the API server " + host
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "the API server " + host + " does not answer: network, VPN or proxy"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "nothing answers at the address of the API server " + host
	case strings.HasPrefix(err.Error(), "getting credentials: "): // client-go has no type for it
		return "the program that the kubeconfig names for credentials failed, or is not in PATH"
	}
	return ""
}
