package deviceplugin

import (
	"context"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Choice is what kubelet may choose from for one container.
type Choice struct {
	Resource  string
	Units     []Unit   // all of the resource
	Available []string // ids
	Must      []string // ids that the container gets in any case
	Size      int      // of the whole, with Must
}

// GetPreferredAllocation implements the API. kubelet admits no pod meanwhile, and refuses the pod if this fails: so it
// does not, and an answer that is of no use to kubelet is one that it does not follow.
func (s *server) GetPreferredAllocation(
	ctx context.Context, req *api.PreferredAllocationRequest,
) (*api.PreferredAllocationResponse, error) {
	units, _ := s.list()
	out := &api.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		r := &api.ContainerPreferredAllocationResponse{}
		if s.prefer != nil {
			r.DeviceIDs = s.prefer(ctx, Choice{
				Resource: s.resource, Units: units, Available: c.GetAvailableDeviceIDs(),
				Must: c.GetMustIncludeDeviceIDs(), Size: int(c.GetAllocationSize()),
			})
		}
		out.ContainerResponses = append(out.ContainerResponses, r)
	}
	return out, nil
}
