package cli

import "github.com/spf13/cobra"

// place is what a command looks at: the cluster, or this machine. fabricctl means the machine and kubectl fabric the
// cluster, where the command line says neither.
type place struct{ cluster, local bool }

// flags adds --cluster and --local.
func (p *place) flags(c *cobra.Command, cluster, local string) {
	c.Flags().BoolVar(&p.cluster, "cluster", false, cluster+" (the default of kubectl fabric)")
	c.Flags().BoolVar(&p.local, "local", false, local+" (the default of fabricctl)")
	c.MarkFlagsMutuallyExclusive("cluster", "local")
}

// settle chooses the cluster for kubectl fabric, unless --local or another source that the command line names is meant.
func (p *place) settle(m *machine, named bool) {
	p.cluster = p.cluster || m.plugin && !p.local && !named
}

// settle chooses for a command that takes recordings, too.
func (s *sources) settle() { s.place.settle(&s.machine, len(s.recordings) > 0 || s.root != "/") }
