package nlmsg

// Exchanges is how many requests have been sent.
func (c *Conn) Exchanges() uint32 { return c.seq }
