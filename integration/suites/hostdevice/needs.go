package main

import ( // what the tests need, which are laid over this directory when they are compiled
	_ "github.com/containernetworking/plugins/pkg/netlinksafe"
	_ "github.com/containernetworking/plugins/pkg/ns"
	_ "github.com/containernetworking/plugins/pkg/testutils"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/vishvananda/netlink"
)
