package fabric

// users reads what on the host uses an RDMA device that is to be moved.
func (g *gatherer) users() (err error) {
	if g.facts.MayMoveRDMA() && !g.facts.AllowsHostUse() {
		g.facts.Users, err = g.host.Users(g.dev.HCA, g.Proc)
	}
	return err
}
