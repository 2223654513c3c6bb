// Package offer turns the devices of a node's fabrics into what its ResourceSlices say: names, attributes, capacity and
// taints (resource.k8s.io/v1). It is pure, and keeps every limit of that API, whatever names the hardware has: one
// value that the API server refuses would cost the node all its devices.
package offer

import (
	"fmt"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// maxName is the length of a DNS label (RFC 1123), which the name of a device is.
const maxName = 63

// shareInfix stands between the name of a device and the number of a share.
const shareInfix = "-share-"

// DeviceName is the name of a device in the slice, from the id that kubelet, Multus and the plugin's deviceID know it
// by: pci-0000-3b-00-0 for 0000:3b:00.0, otherwise the address with everything but a-z, 0-9 as a dash. An id that makes
// no DNS label is an error.
func DeviceName(id string) (string, error) {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, id)
	if !strings.Contains(id, "/") {
		name = "pci-" + name
	}
	name = strings.Trim(name, "-")
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("device %q has no name in a ResourceSlice: want 1 to %d characters", id, maxName)
	}
	return name, nil
}

// ShareName is the name of a share of a device, where the API server knows no device of several claims.
func ShareName(device string, share int) string { return device + shareInfix + strconv.Itoa(share) }

// Share is the device that a name in a slice means, and the id of the share as kubelet's device plugin knows it; empty:
// the device itself.
func Share(name string) (device, share string) {
	i := strings.LastIndex(name, shareInfix)
	if i < 0 {
		return name, ""
	}
	if n, err := strconv.Atoi(name[i+len(shareInfix):]); err != nil || n < 0 {
		return name, ""
	}
	return name[:i], name[i:]
}

// Attributes. Those without a domain are the driver's own: device.attributes["fabric.dev"].fabric in a selector.
const (
	AttrFabric     resourceapi.QualifiedName = "fabric"
	AttrRail       resourceapi.QualifiedName = "rail"
	AttrLinkLayer  resourceapi.QualifiedName = "linkLayer"
	AttrRateGb     resourceapi.QualifiedName = "rateGb"
	AttrState      resourceapi.QualifiedName = "state"
	AttrRDMADevice resourceapi.QualifiedName = "rdmaDevice"
	AttrNetdev     resourceapi.QualifiedName = "netdev"
	AttrGUID       resourceapi.QualifiedName = "guid"
	AttrNUMA       resourceapi.QualifiedName = "numaNode"
	AttrFirmware   resourceapi.QualifiedName = "firmware"
	// AttrNUMANode is the standard one, for matchAttribute with devices of other drivers; AttrNUMA is older than that.
	AttrNUMANode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"
	AttrPCIeRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"
	AttrPCIBusID resourceapi.QualifiedName = "resource.kubernetes.io/pciBusID"
	// AttrDeviceID and AttrResource are those of Multus (k8snetworkplumbingwg, device information).
	AttrDeviceID resourceapi.QualifiedName = "k8s.cni.cncf.io/deviceID"
	AttrResource resourceapi.QualifiedName = "k8s.cni.cncf.io/resourceName"
)

// CapacityShares counts the claims that a device of a fabric with attachment IPoIBChild may have.
const CapacityShares resourceapi.QualifiedName = "shares"

// TaintUnhealthy is the key of the taint of a device that new pods should not get. Its value is the problem: PortDown,
// Flapping or CounterLimit.
const TaintUnhealthy = "fabric.dev/unhealthy"
