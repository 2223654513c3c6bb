package attach

import "fmt"

// Duplicate is something that only one may have on a network, and who has it.
type Duplicate struct {
	Value string
	By    string
	Pod   bool // it is an attachment of another pod, or of this one
}

// refuseDuplicateAddresses refuses a hardware address or an address that is in use on this node: two of them on one
// network lose packets, each in turn. What is elsewhere on the network is not seen here.
func (d *decider) refuseDuplicateAddresses() {
	d.refuse(d.MACHolder.Refusal("mac"))
	d.refuse(d.AddrHolder.Refusal("ipam"))
}

// Refusal is the reason that it is against the attachment, nil for none. field is what asks for the value.
func (dup *Duplicate) Refusal(field string) *Refusal {
	if dup == nil {
		return nil
	}
	return &Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("field %q: address %s is in use by %s", field, dup.Value, dup.By),
		Hint:    "choose another one: it is unique in its network",
		Passing: dup.Pod,
	}
}
