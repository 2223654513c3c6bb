package attach

// Reason says in a word why an attachment is refused.
type Reason string

// The reasons. The CNI plugin has an error code for each.
const (
	NoDevice  Reason = "NoDevice"  // no such device, or it lacks what the configuration needs
	InUse     Reason = "InUse"     // the device, or what it would take along, is in use
	PortDown  Reason = "PortDown"  // the port carries no traffic
	RDMAMode  Reason = "RDMAMode"  // the RDMA network namespace mode of the system does not fit
	Forbidden Reason = "Forbidden" // the node policy forbids it
	NameTaken Reason = "NameTaken" // the pod has an interface of this name
	BadConfig Reason = "BadConfig" // the configuration does not fit the device
	NotYet    Reason = "NotYet"    // something else has to happen first; worth another try
)

// Refusal is a reason not to attach the device.
type Refusal struct {
	Reason  Reason
	Message string
	Hint    string // what to do about it, in one clause; may be empty

	// Passing is set when the reason is a pod: another one has what this one needs, or something is awaited for this
	// one. It says nothing about the node or the configuration, and STATUS does not count it.
	Passing bool

	// Awaited is set when the reason may be gone within seconds, without any doing of this node: ADD looks again.
	Awaited bool
}
