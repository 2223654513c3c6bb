package bare

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Job is one device that goes into a pod and back. The calling thread must be locked.
type Job struct {
	Mode    string // ipoib, netdev or child
	Netns   string // path
	Host    string // name of the netdev on the host; of the parent for a child
	Pod     string // name in the pod
	Address string // in the pod, CIDR
	Bus     string // bus address of the RDMA device
	HCA     string // its name
}

const pkey = 0x8001

func (j Job) spaces() (host, pod *Space, err error) {
	families := []int{unix.NETLINK_ROUTE}
	if j.Mode == "ipoib" {
		families = append(families, unix.NETLINK_RDMA)
	}
	if host, err = Open("/proc/thread-self/ns/net", families...); err != nil {
		return nil, nil, err
	}
	if pod, err = Open(j.Netns, families...); err != nil {
		host.Close()
		return nil, nil, err
	}
	return host, pod, nil
}

// Add puts the device into the pod, up and with its address.
func (j Job) Add() error {
	host, pod, err := j.spaces()
	if err != nil {
		return err
	}
	defer host.Close()
	defer pod.Close()
	var index int
	switch j.Mode {
	case "ipoib":
		if err := host.MoveRDMA(j.HCA, pod); err != nil {
			return err
		}
		index, err = host.OnBus(j.Bus) // a new one, where it is made up to Linux 6.16
	case "netdev", "child":
		index, err = host.Named(j.Host)
	default:
		err = fmt.Errorf("mode %q", j.Mode)
	}
	if err != nil {
		return err
	}
	if j.Mode == "child" {
		err = host.Child(index, pod, j.Pod, pkey)
	} else {
		err = host.Set(index, pod, j.Pod)
	}
	if err != nil {
		return err
	}
	if index, err = pod.Named(j.Pod); err != nil {
		return err
	}
	return pod.Address(index, j.Address)
}

// Del brings the device home, up and under its name, or removes the child.
func (j Job) Del() error {
	host, pod, err := j.spaces()
	if err != nil {
		return err
	}
	defer host.Close()
	defer pod.Close()
	if j.Mode == "ipoib" {
		if err := pod.In(host, func() error { return pod.MoveRDMA(j.HCA, host) }); err != nil {
			return err
		}
		index, err := host.OnBus(j.Bus)
		if err != nil {
			return err
		}
		return host.Set(index, nil, j.Host)
	}
	index, err := pod.Named(j.Pod)
	if err != nil {
		return err
	}
	if j.Mode == "child" {
		return pod.Delete(index)
	}
	return pod.Set(index, host, j.Host)
}
