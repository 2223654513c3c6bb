package device

// Upper is a netdev that sits on another one: a VLAN, a macvlan, the bond or bridge that the other is part of.
type Upper struct {
	Netdev
	On int // ifindex of the netdev right below it
}
