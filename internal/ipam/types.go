package ipam

import (
	"context"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/internal/ipam/static"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Type is what is known of an IPAM plugin by its name. The zero value is right for one that nothing is known of.
type Type struct {
	Name string // of the plugin
	// NeedsInterface is set for a plugin that works through the interface, which has to be up in the pod before ADD.
	// The others run while the device moves.
	NeedsInterface bool
	// RejectsCheck is set for a plugin whose CHECK is an error whatever the state is. It is not asked.
	RejectsCheck bool

	builtin *builtin // nil: always executed
}

// builtin is a plugin that needs no process.
type builtin struct {
	// section points to what the plugin decodes the section ipam into. A configuration with any other key goes to the
	// executable, which may be a newer release that knows the key.
	section any
	add     func(_ context.Context, _ netconf.Env, conf []byte) (r *current.Result, confVersion string, err error)
	check   func(_ context.Context, _ netconf.Env, conf []byte) error
	del     func(_ context.Context, _ netconf.Env, conf []byte) error
	predict func(_ netconf.Env, conf []byte) (*current.Result, error)
	valid   func(_ netconf.Env, conf []byte) error // what all of them say to a configuration that is wrong
}

// known has a row for each IPAM plugin that differs from an unknown one. Which ranges a configuration has, and how full
// they are, is a question of the agent and of fabricctl: package ranges has the rows for that, because the libraries it
// needs are too large for the CNI binary.
// It is a list and not a map, so that the linker lays it out: a map would be filled at each start of the CNI binary.
var known = [...]Type{
	{Name: "dhcp", NeedsInterface: true},
	{Name: "whereabouts", RejectsCheck: true},
	{Name: "static", builtin: &builtin{
		section: (*static.IPAMConfig)(nil),
		add:     static.Add, check: static.Check, del: static.Del, predict: static.Predict,
		valid: static.Valid,
	}},
	{Name: "host-local", builtin: &builtin{
		section: (*hostlocal.IPAMConfig)(nil),
		add:     hostlocal.Add, check: hostlocal.Check, del: hostlocal.Del, predict: hostlocal.Predict,
		valid: hostlocal.Valid,
	}},
}

// TypeOf returns what is known of an IPAM plugin.
func TypeOf(name string) Type {
	for _, t := range known {
		if t.Name == name {
			return t
		}
	}
	return Type{Name: name}
}
