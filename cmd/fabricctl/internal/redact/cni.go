package redact

import (
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// CNI reduces the configuration of CNI plugins to the fields that are known: those of this plugin, of Multus, of the
// reference plugins and of the IPAM plugins that internal/ipam knows.
func CNI(b []byte) []byte {
	v, ok := document(b)
	if !ok {
		return []byte(Removed + "\n")
	}
	return encode(clean(v, cniKeys), "  ")
}

// Objects reduces the list of NetworkAttachmentDefinitions, or of other objects, that kubectl prints as JSON: names,
// and of a spec what CNI leaves.
func Objects(b []byte) []byte {
	v, ok := document(b)
	if !ok {
		return []byte(Removed + "\n")
	}
	return encode(clean(v, objectKeys), "  ")
}

// Journal reduces what the plugin has saved of an attachment: of the configuration that it was given, what CNI leaves.
func Journal(b []byte) []byte {
	v, ok := document(b)
	list, isList := v.([]any)
	if !ok || !isList {
		return Text(b)
	}
	for _, e := range list {
		entry, ok := e.(map[string]any)
		if !ok {
			continue
		}
		conf, ok := entry["conf"]
		if ok {
			entry["conf"] = clean(conf, cniKeys)
		}
		clean(entry, nil)
	}
	return encode(list, "  ")
}

// The fields of this plugin are those of pkg/netconf.
var (
	cniKeys = set(netconf.Fields(), `
		cniVersions plugins delegates cni logLevelVerbose infinibandGUID CNIDeviceInfoFile bridge isGateway
		isDefaultGateway hairpinMode promiscMode range ranges subnet rangeStart rangeEnd range_start range_end gateway
		exclude routes dst gw addresses address ipRanges enable_overlapping_ranges network_name node_slice_size
		dataDir nameservers domain search options portMappings bandwidth snat sandbox containerID interfaces ips
		interface version ifname binDir confDir cniDir clusterNetwork defaultNetworks systemNamespaces
		namespaceIsolation readinessindicatorfile datastore_type nodename policy assign_ipv4 assign_ipv6`)
	objectKeys = set(slices.Collect(maps.Keys(cniKeys)), `
		apiVersion match discovered linkLayer subnetPrefix rateGb rail devices attachment shares namespaces names
		selector matchLabels rdmaMode sourceBasedRouting deviceFiles selected former
		nodeRanges perNodePrefixLength static node reclaim health counters counter perMinute flapsPerTenMinutes recovery
		action precedence poolName poolType network status observedGeneration inForce nodes total healthy attached
		published conditions reason message lastTransitionTime finalizers deletionTimestamp kind items metadata
		namespace creationTimestamp generation uid templates resourceClaims requests request exactly firstAvailable
		deviceClassName allocationMode
		count selectors cel expression constraints matchAttribute tolerations taints key value effect operator
		timeAdded results driver pool resourceSliceCount nodeName allNodes fabric state netdev numaNode firmware plane
		resource.kubernetes.io/pcieRoot resource.kubernetes.io/pciBusID resource.kubernetes.io/numaNode
		k8s.cni.cncf.io/deviceID k8s.cni.cncf.io/resourceName
		string int bool attributes capacity allowMultipleAllocations reservedFor resource
		ownerReferences nodeSelector nodeSelectorTerms matchFields matchExpressions values allocationTimestamp
		networkData interfaceName hardwareAddress shareID extendedResourceName opaque parameters resourceVersion
		labels annotations k8s.v1.cni.cncf.io/resourceName spec config allocations podref id`)
)

func set(fields []string, words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range append(fields, strings.Fields(words)...) {
		m[strings.ToLower(w)] = true
	}
	delete(m, "kubeconfig") // it leads to credentials
	return m
}
