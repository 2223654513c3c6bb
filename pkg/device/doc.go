// Package device holds plain values: the address of a device, its RDMA face (HCA and ports), its network face (Netdev),
// and the small identifiers that they carry (GUID, PKey, SubnetPrefix). Nothing here does I/O.
//
// A device is its bus address. Names and ifindexes change whenever it moves, and are looked up again each time.
//
// # Stability
//
// Other programs may import this package, for example to read the journal or the output of fabricctl. The text and JSON
// forms of its types stay readable for all later versions: the journal of a running node depends on them. Go names may
// change with a minor version before 1.0, and are then in CHANGELOG.md.
package device
