// Package device holds plain values: the address of a device, its RDMA face (HCA and ports), its network face (Netdev),
// and the small identifiers they carry (GUID, PKey). Nothing here does I/O.
//
// A device is its bus address. Names and ifindexes change whenever it moves, and are looked up again each time.
package device
