package journal

import "encoding/json"

// Given is the device of a ResourceClaim that an attachment is made of.
type Given struct {
	ClaimUID string `json:"claimUID"`
	Claim    string `json:"claim"`   // namespace/name
	Request  string `json:"request"` // of the claim
	Device   string `json:"device"`  // its name in the ResourceSlice
	ShareID  string `json:"shareID,omitempty"`
	// Conf is what stands instead of fields of the network's configuration: the selector, and the claim's settings.
	Conf map[string]json.RawMessage `json:"conf,omitempty"`
}

// Same tells the same device of the same claim.
func (g *Given) Same(o *Given) bool {
	return g.ClaimUID == o.ClaimUID && g.Request == o.Request && g.Device == o.Device && g.ShareID == o.ShareID
}
