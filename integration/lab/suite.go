package lab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Suite is a set of guest tests that need the same machine. Each of its shards is one guest per kernel.
type Suite struct {
	Name      string
	Package   string        // of the guest tests; "": ./integration/lab/guest
	Run       string        // regular expression: the top-level tests of the suite
	Append    []string      // kernel command line
	Devices   []string      // QEMU arguments
	NewQEMU   bool          // see Spec
	Series    []string      // kernels it is for; none: all
	Shards    int           // guests over which the tests are dealt; 0: 1
	Timeout   time.Duration // of a guest; 0: 10 minutes
	AllowSkip []string      // top-level tests that may skip: any other skip is a failure
}

// exclusive is how a node gets exclusive RDMA namespaces: like "options ib_core netns_mode=0" in modprobe.d.
var exclusive = []string{"ib_core.netns_mode=0"}

// on612 is for suites about the plugin's manners (selectors, messages, orders), and for the matrix of what is the same
// on all kernels: a VF's settings. What differs between kernels is in the matrix, the returns and the facts, which run
// on all.
var on612 = []string{"6.12"}

// Suites are all suites. Every guest test belongs to exactly one: TestLab fails otherwise.
var Suites = []Suite{
	matrix, matrixShared, returns,
	{
		Name:    "exclusive",
		Run:     `^Test(Fabric|Fact|Harness|Snapshot)`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
	{
		Name: "shared",
		Run:  `^TestShared`,
	},
	{
		Name:    "ether",
		Run:     `^TestEther`,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
	},
	{
		Name:    "vf",
		Run:     `^TestVF`,
		Append:  append([]string{"intel_iommu=on"}, exclusive...), // vfio-pci wants an IOMMU
		Devices: append([]string{"-device", "intel-iommu"}, SRIOV(8)...),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "vf-matrix",
		Series:  on612,
		Run:     `^TestMatrixVF`,
		Append:  exclusive,
		Devices: SRIOV(2),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "igb-matrix",
		Series:  on612,
		Run:     `^TestMatrixIGB`,
		Append:  exclusive,
		Devices: append(VirtioNet(1), IGB()...),
		NewQEMU: true,
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "igb",
		Run:     `^TestIGB`,
		Append:  exclusive,
		Devices: append(VirtioNet(1), IGB()...),
		NewQEMU: true,
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "vf-shared",
		Run:     `^TestFunctionShared`,
		Devices: SRIOV(8),
	},
	{
		// The tool for people, on the node of story S1.
		Name:    "ctl",
		Series:  []string{"6.12", "next"},
		Run:     `^TestCtl`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
	{
		// What goes wrong in other plugins.
		Name:    "peers",
		Series:  on612,
		Run:     `^TestPeer`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Shards:  2,
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "plugin",
		Series:  on612,
		Run:     `^TestPlugin`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Shards:  2,
		Timeout: 15 * time.Minute,
	},
	{
		// One test, as long as it takes; see $FABRIC_LAB_ROUNDS.
		Name:    "parallel",
		Series:  on612,
		Run:     `^TestParallel`,
		Append:  exclusive,
		Timeout: 25 * time.Minute,
	},
	{
		Name:    "agent",
		Package: "./integration/lab/agent",
		Series:  on612,
		Run:     `^TestAgent`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
}

const guestPackage = "./integration/lab/guest"

func (s Suite) pkg() string {
	if s.Package != "" {
		return s.Package
	}
	return guestPackage
}

func (s Suite) wants(k Kernel) bool {
	if len(s.Series) == 0 {
		return true
	}
	for _, series := range s.Series {
		if series == k.Series {
			return true
		}
	}
	return false
}

// assign returns the tests of each suite, and an error for those that belong to none or to several.
func assign(suites []Suite, pkg string, tests []string) (map[string][]string, error) {
	assigned := make(map[string][]string)
	var errs []error
	for _, test := range tests {
		var owners []string
		for _, s := range suites {
			if s.pkg() != pkg {
				continue
			}
			match, err := regexp.MatchString(s.Run, test)
			if err != nil {
				return nil, fmt.Errorf("suite %s: %w", s.Name, err)
			}
			if match {
				owners = append(owners, s.Name)
				assigned[s.Name] = append(assigned[s.Name], test)
			}
		}
		if len(owners) != 1 {
			errs = append(
				errs,
				fmt.Errorf("guest test %s of %s belongs to suites %v, want exactly one", test, pkg, owners),
			)
		}
	}
	return assigned, errors.Join(errs...)
}

// deal splits tests over n guests, in turn, so that long neighbours do not end up in one.
func deal(tests []string, n int) [][]string {
	n = min(max(n, 1), len(tests))
	shards := make([][]string, n)
	for i, test := range tests {
		shards[i%n] = append(shards[i%n], test)
	}
	return shards
}

// pattern returns a -test.run expression for exactly these top-level tests; rest is that of their subtests.
func pattern(tests []string, rest string) string {
	p := "^(" + strings.Join(tests, "|") + ")$"
	if rest != "" {
		p += "/" + rest
	}
	return p
}
