package controller

// The reasons of conditions of a Fabric, by condition. docs/reference/signals.md is made from these comments: the first
// paragraph is what a reason means, the second what to do.

// Reasons with which all is well.
const (
	sufficient = "Sufficient"
	unique     = "Unique"
)

// Reasons of the condition Accepted.
const (
	// refusedSpec says that the present generation of the spec is not valid, or does not fit another Fabric; the last
	// one that was accepted stays in force.
	//
	// The message names the field and what is allowed.
	refusedSpec = "Refused"
	// draNotServed says that the API server has no DeviceClasses, which allocation DRA needs.
	//
	// Update the cluster to Kubernetes 1.34, or do without allocation DRA.
	draNotServed = "DRANotServed"
)

// Reasons of the condition AddressesSufficient.
const (
	// waitingFor says that nodes wait for a range until the nodes that the message names have said what their pods
	// hold: two minutes at most.
	//
	// Do the agents of these nodes run?
	waitingFor = "WaitingForNodes"
	// rangeReserved says that a static range is one that another node had: it is given when that node has said that
	// none of its pods holds an address of it.
	//
	// Delete the pods of that node, or give the range to no node.
	rangeReserved = "RangeReserved"
	// conflict says that pods of a node hold addresses of another node's range.
	//
	// Delete these pods: the message names the node.
	conflict = "AddressConflict"
	// rangeTooSmall says that nodes or interfaces have no place in the range.
	//
	// Choose a wider range, or smaller ranges or blocks for each node.
	rangeTooSmall = "RangeTooSmall"
	// ipamMissing says that the cluster lacks the kinds of whereabouts or nv-ipam, or that nodes, which the message
	// names, lack the program.
	//
	// Install the IPAM plugin: the Fabric is ready then without a restart.
	ipamMissing = "IPAMMissing"
	// poolMissing says that there is no pool of this name.
	//
	// Make the IPPool or CIDRPool in the namespace where nv-ipam looks for pools, or correct its name or kind.
	poolMissing = "PoolMissing"
	// poolNotReady says that nv-ipam has given nothing to the nodes that the message names. A node is not named in its
	// first minute.
	//
	// Is nv-ipam's controller running, and does the pool's nodeSelector select these nodes?
	poolNotReady = "PoolNotReady"
	// poolFull says that the pool has no address left: the next pod does not start.
	//
	// Choose a wider range; look for addresses of pods that are gone.
	poolFull = "PoolFull"
	// poolNearlyFull says that over 90 % of the addresses are given. The condition is True.
	//
	// Choose a wider range before nodes or pods have to wait.
	poolNearlyFull = "PoolNearlyFull"
)

// Reasons of the condition AddressesUnique.
const (
	// rangeInUse says that the cluster has addresses in the ranges of the Fabric: the message names what has them.
	//
	// Choose a free range for a new Fabric, and delete this one once no pod has its addresses.
	rangeInUse = "RangeInUse"
	// notCompared says that the controller could not read all addresses of the cluster, and found none of the Fabric's
	// ranges in the rest. The condition is True.
	//
	// Give the controller the rights that the message names.
	notCompared = "NotCompared"
)

// Reasons of the condition Published.
const (
	// multusMissing says that the cluster has no NetworkAttachmentDefinitions.
	//
	// Install Multus; Fabrics with allocation DRA work without it.
	multusMissing = "MultusMissing"
	// namespaceMissing says that a namespace that the Fabric lists does not exist. The Fabric stays Ready if the
	// network is in another namespace.
	//
	// Create it, or remove it from the list.
	namespaceMissing = "NamespaceMissing"
	// publishFailed says that the API server has refused to list, create, change or delete a definition; the message
	// has its words. Other namespaces and other Fabrics are not affected.
	//
	// Look for a quota, a webhook or a missing permission. The controller tries again after 10 s, then less and less
	// often, at least every 2 minutes.
	publishFailed = "PublishFailed"
	// networkConflict says that a definition of this name exists that the controller has not made.
	//
	// It is left alone: remove or rename it.
	networkConflict = "NetworkConflict"
	// networkPutBack says that the Fabric's definition was changed or deleted; the message names the program that did
	// it, from managedFields. The condition is True.
	//
	// It is put back within a minute, and the condition stays for an hour. Change the Fabric instead.
	networkPutBack = "NetworkPutBack"
	// networkContested says that the definition was changed or deleted three times or more within an hour.
	//
	// It is put back after 1 minute, then 2, and so on up to 10. Stop that program, or rename the Fabric.
	networkContested = "NetworkContested"
	// classConflict says that a DeviceClass of this name exists that the controller has not made.
	//
	// It is left alone: remove or rename it.
	classConflict = "DeviceClassConflict"
	// classFailed says that the API server has refused to list, create, change or delete a DeviceClass; the message has
	// its words.
	//
	// Apply the manifests of the controller's version: it lacks a permission, most likely.
	classFailed = "DeviceClassFailed"
)

// Reasons of the condition Degraded.
const (
	// devicesUnhealthy says that some devices are unhealthy: the message has how many, and why. The condition is True.
	// Ready is False if all are.
	//
	// The FabricNodes have the problem of each device.
	devicesUnhealthy = "DevicesUnhealthy"
)

// Reasons of the condition Ready.
const (
	// inUse says that the Fabric is being deleted, and waits for the pods that the message names.
	//
	// Delete these pods.
	inUse = "InUse"
	// noDevices says that no node has a device of the Fabric.
	//
	// Compare what the Fabric matches with what the nodes have: their condition FabricsUsed names the nearest device.
	noDevices = "NoDevices"
	// notConnected says that no port of the Fabric has ever been Active.
	//
	// Connect one, or match other devices.
	notConnected = "NotConnected"
)
