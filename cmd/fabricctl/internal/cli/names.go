package cli

import (
	"fmt"
	"regexp"
)

// nameRule is what the value of a flag may be that becomes part of an object of the cluster.
type nameRule struct {
	pattern *regexp.Regexp
	most    int // bytes
	want    string
}

// The rules of Kubernetes for names (RFC 1123 labels and subdomains), and the grammar of image references.
var (
	labelRule = nameRule{
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`), 63,
		"small letters, digits and dashes, a letter or digit at both ends, at most 63 in all",
	}
	workloadRule = nameRule{ // pods of a workload have it with an ending: -launcher, -worker-0
		regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`), 52,
		"small letters, digits and dashes, a letter first, no dash last, at most 52 in all",
	}
	domainRule = nameRule{
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`), 253,
		"a domain such as nvidia.com",
	}
	resourceRule = nameRule{
		regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*` +
			`/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`),
		253, "a resource such as nvidia.com/gpu",
	}
	nodeRule  = nameRule{domainRule.pattern, 253, "the name of a node such as gpu-1"}
	imageRule = nameRule{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?(@sha256:[0-9a-f]{64})?$`), 512,
		"an image such as registry.example.com/nccl-tests:1",
	}
)

// check checks the value of a flag.
func (r *nameRule) check(flag, value string) error {
	if len(value) > r.most || !r.pattern.MatchString(value) {
		return fmt.Errorf("%w: --%s %.300q: want %s", errUsage, flag, value, r.want)
	}
	return nil
}
