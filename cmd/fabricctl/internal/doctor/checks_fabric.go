package doctor

// fabricChecks are those of fabricctl topology.
var fabricChecks = []Check{
	{
		"fabric-wrong-rail",
		"Every cable is on the leaf of its rail",
		"the cable is in another switch, or in another port of the node, than on nodes that are cabled like this " +
			"one: traffic within the rail takes the way over a spine, and shares its links",
		"swap the two cables at the switches, if the evidence names a pair; else move this one; then look again",
	},
	{
		"fabric-cable-missing",
		"No cable is missing",
		"cable not plugged in or broken, transceiver, or a port that is switched off: peers have this link",
		"Down with physical state Polling: cable or transceiver (ibdiagnet, mlxlink -d ADDRESS); Disabled: " +
			"ibportstate LID PORT enable",
	},
	{
		"fabric-link-slow",
		"Links have the rate of their peers",
		"a bad cable or transceiver makes the link train with fewer lanes or at a lower speed; or the port's " +
			"speed is limited by configuration",
		"plug it in again or change the cable; ibportstate LID PORT query shows what is enabled",
	},
	{
		"fabric-oversubscribed",
		"Leaves have as much bandwidth up as down",
		"there are fewer links to spines than to nodes, by design or because some are missing",
		"if it is the design, keep jobs within a leaf or a group: fabricctl generate topology; else add links",
	},
	{
		"fabric-isolated",
		"Everything is in one fabric",
		"a part of the fabric has no link to the rest, or these ports are in another subnet",
		"ibnetdiscover once in each subnet, all with -f; links between the parts: cables and switch ports",
	},
	{
		"fabric-shortcut",
		"Links between switches go one level up or down",
		"a cable joins two switches of one level in a tree: up/down routing does not use it, or deadlocks",
		"move the cable to a switch of the next level",
	},
	{
		"fabric-identity",
		"Every port belongs to the node in its description",
		"the description of the HCA is that of another node: a copied image, or a false name; the port " +
			"counts for no node",
		"rdma-ndd on the node (systemctl restart rdma-ndd); discover --record on all nodes, and give the recordings",
	},
}

// Fabric is a finding of fabricctl topology.
func Fabric(id string, s Status, evidence string) Finding { return finding(id, s, evidence) }
