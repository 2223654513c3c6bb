package fabric

import (
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// PredictAddresses returns the addresses that the IPAM plugin of a configuration would give now, and reserves none. It
// returns nil where that is not known here: whereabouts, dhcp and others decide by themselves.
func PredictAddresses(cfg *netconf.Config, env netconf.Env) (*plan.Addressing, error) {
	r, known, err := ipam.Delegate{Type: cfg.IPAM.Type, Conf: cfg.Raw, Env: env}.Predict()
	if err != nil || !known {
		return nil, err
	}
	return addressing(r), nil
}
