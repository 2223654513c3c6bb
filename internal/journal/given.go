package journal

import "encoding/json"

// ClaimDevice is the device of a ResourceClaim that an attachment is made of.
type ClaimDevice struct {
	ClaimUID string `json:"claimUID"`
	Claim    string `json:"claim"`   // namespace/name
	Request  string `json:"request"` // of the claim
	Device   string `json:"device"`  // its name in the ResourceSlice
	ShareID  string `json:"shareID,omitempty"`
	// Conf is what stands instead of fields of the network's configuration: the selector, and the claim's settings.
	Conf map[string]json.RawMessage `json:"conf,omitempty"`
}

// Same tells the same device of the same claim.
func (g *ClaimDevice) Same(o *ClaimDevice) bool {
	return g.ClaimUID == o.ClaimUID && g.Request == o.Request && g.Device == o.Device && g.ShareID == o.ShareID
}
