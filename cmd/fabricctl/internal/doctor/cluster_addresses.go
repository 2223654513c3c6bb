package doctor

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// clusterAddresses finds Fabrics whose ranges something else in the cluster has addresses of. A Fabric that can't be
// read is a finding of cluster-fabrics.
func clusterAddresses(c *Cluster) (out []Finding) {
	if c.Net == nil || len(c.Fabrics) == 0 {
		return nil
	}
	for i := range c.Fabrics {
		o := c.Fabrics[i].DeepCopy()
		o.Spec = *inForce(o)
		f, err := fabrics.Parse(o)
		if err != nil {
			continue
		}
		if met := f.Meets(c.Net.Uses); len(met) > 0 {
			s := Warn
			if met.Sure() {
				s = Fail
			}
			d := finding("cluster-addresses", s, fmt.Sprintf("Fabric %s: %v", f.Name, met.Err()))
			d.Cure = named(d.Cure, f.Name)
			out = append(out, d)
		}
	}
	if len(c.Net.Missing) > 0 {
		text := "addresses are not compared with " + quote.Clip(strings.Join(c.Net.Missing, "; "), 1000)
		return append(out, finding("cluster-access", Warn, text))
	}
	return pass(out, "cluster-addresses", c.Net.Because())
}
