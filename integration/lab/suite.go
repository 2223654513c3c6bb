package lab

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Suite is a set of guest tests that need the same machine. Suites with equal machines share guests, if not Apart.
type Suite struct {
	Name      string
	Package   string        // of the guest tests; "": ./integration/lab/guest
	Run       string        // regular expression: the top-level tests of the suite
	Append    []string      // kernel command line
	Devices   []string      // QEMU arguments
	Apart     bool          // its guests run no other suite: its tests take the netdevs as they are after boot
	NewQEMU   bool          // see Spec
	Series    []string      // kernels it is for; none: all
	Night     bool          // only when it is asked for, and in a full run
	UserLand  bool          // $FABRIC_USERLAND, see UserLand
	Pyverbs   bool          // $FABRIC_PYVERBS, see Pyverbs
	Deal      []Deal        // tests that are dealt to several guests
	Tools     []string      // programs in $FABRIC_BIN_DIR in addition to Binaries
	Timeout   time.Duration // of a test, or a piece of one; 0: 10 minutes
	AllowSkip []string      // top-level tests that may skip: any other skip is a failure
}

// Deal makes pieces of a test, each of which a guest runs by itself. The test runs those of its cells or rounds that
// belong to $FABRIC_LAB_PIECE.
type Deal struct {
	Run    string // regular expression: top-level tests
	Pieces int
}

// exclusive is how a node gets exclusive RDMA namespaces: like "options ib_core netns_mode=0" in modprobe.d.
var exclusive = []string{"ib_core.netns_mode=0"}

// on612 is for suites about the plugin's manners (selectors, messages, orders), and for the matrix of what is the same
// on all kernels: a VF's settings. What differs between kernels is in the matrix, the returns and the facts, which are
// for all.
var on612 = []string{"6.12"}

// Suites are all suites. Every guest test belongs to exactly one: TestLab fails otherwise.
var Suites = []Suite{
	matrix, matrixRoCE, matrixShared, returns,
	{
		Name:    "exclusive",
		Run:     `^Test(Fabric|Fact|Harness)`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
	{
		// Whether the snapshot that all tests compare sees what it must see.
		Name:    "snapshot",
		Run:     `^TestSnapshot`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Timeout: 20 * time.Minute,
	},
	{
		// Names of RDMA devices are unique in the system up to 7.2, in a network namespace since 7.3.
		Name:    "names",
		Tools:   []string{"fabricctl"},
		Run:     `^TestRDMAName`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
	{
		// The fault matrix where such names are unique in a network namespace.
		Name:    "names-matrix",
		Series:  []string{"next"},
		Run:     `^TestMatrixNames`,
		Append:  exclusive,
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "shared",
		Run:     `^TestShared`,
		Devices: VirtioNet(1),
		Timeout: 20 * time.Minute,
	},
	{
		Name:    "ether",
		Run:     `^TestEther`,
		Apart:   true,
		Append:  exclusive,
		Devices: append(VirtioNet(2), E1000e(2)...),
		Timeout: 20 * time.Minute,
	},
	{
		Name:    "vf",
		Run:     `^TestVF`,
		Deal:    []Deal{{Run: `^TestVFParallel$`, Pieces: 3}},
		Append:  append([]string{"intel_iommu=on"}, exclusive...), // vfio-pci wants an IOMMU
		Devices: append([]string{"-device", "intel-iommu"}, SRIOV(8)...),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "vf-many",
		Tools:   []string{"fabricctl"},
		Series:  on612,
		Run:     `^TestManyVFs$`,
		Append:  exclusive,
		Devices: SRIOV(127),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "vf-matrix",
		Series:  on612,
		Run:     `^TestMatrixVF`,
		Deal:    []Deal{{Run: `.`, Pieces: 2}},
		Append:  exclusive,
		Devices: SRIOV(2),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "igb-matrix",
		Series:  on612,
		Run:     `^TestMatrixIGB`,
		Deal:    []Deal{{Run: `.`, Pieces: 2}},
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
		// The tool for people, on the node S1.
		Name:    "ctl",
		Tools:   []string{"fabricctl"},
		Series:  []string{"6.12", "next"},
		Run:     `^Test(Ctl|Selftest)`,
		Append:  exclusive,
		Devices: VirtioNet(1),
	},
	{
		// The same, on a node with virtual functions.
		Name:    "ctl-vf",
		Tools:   []string{"fabricctl"},
		Series:  on612,
		Run:     `^TestToolVF`,
		Append:  exclusive,
		Devices: SRIOV(8),
	},
	{
		// The same, in shared mode.
		Name:    "ctl-shared",
		Tools:   []string{"fabricctl"},
		Series:  on612,
		Run:     `^TestToolShared`,
		Devices: E1000e(2),
	},
	{
		// The same with real measurements, and what is said of those that fail.
		Name:     "ctl-traffic",
		Tools:    []string{"fabricctl"},
		UserLand: true,
		Run:      `^TestVerify`,
		Append:   exclusive,
		Devices:  E1000e(2), // for RoCE
	},
	{
		// What goes wrong in other plugins.
		Name:    "peers",
		Series:  on612,
		Run:     `^TestPeer`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Timeout: 15 * time.Minute,
	},
	{
		Name:    "plugin",
		Series:  on612,
		Run:     `^TestPlugin`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Timeout: 15 * time.Minute,
	},
	{
		// See $FABRIC_LAB_ROUNDS.
		Name:    "parallel",
		Series:  on612,
		Run:     `^TestParallel`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Deal:    []Deal{{Run: `Rails`, Pieces: 4}},
		Timeout: 15 * time.Minute,
	},
	{
		// Random walks on the node S1. $FABRIC_WALK_OPS says how long.
		Name:    "walk",
		Run:     `^TestWalkRails`,
		Append:  exclusive,
		Devices: VirtioNet(1),
		Timeout: 60 * time.Minute,
	},
	{
		// The same with virtual functions, which can leave and come back.
		Name:    "walk-vf",
		Run:     `^TestWalkVF`,
		Append:  exclusive,
		Devices: SRIOV(4),
		Timeout: 60 * time.Minute,
	},
	{
		// Pods do RDMA.
		Name:     "traffic",
		Run:      `^TestTraffic([^RS]|R[^o]|S[^h])`,
		UserLand: true,
		Append:   exclusive,
		Devices:  append(VirtioNet(1), SRIOV(4)...),
	},
	{
		// The same, in shared mode.
		Name:     "traffic-shared",
		Tools:    []string{"fabricctl"},
		Run:      `^TestTrafficShared`,
		UserLand: true,
		Devices:  VirtioNet(2),
	},
	{
		// rdma-core's own tests: minutes of emulation that say little about a change of the plugin.
		Name:     "pyverbs",
		Run:      `^TestPyverbs`,
		Night:    true,
		UserLand: true,
		Pyverbs:  true,
		Append:   exclusive,
		Devices:  VirtioNet(1),
		Timeout:  30 * time.Minute,
	},
	{
		// The same over Ethernet.
		Name:     "traffic-roce",
		Tools:    []string{"fabricctl"},
		Run:      `^TestTrafficRoCE`,
		UserLand: true,
		Append:   exclusive,
		Devices:  E1000e(4),
	},
	{
		Name:    "agent",
		Package: "./integration/lab/agent",
		Series:  on612,
		Run:     `^TestAgent`,
		Append:  exclusive,
		Devices: append(VirtioNet(1), E1000e(1)...),
	},
}

const guestPackage = "./integration/lab/guest"

func (s Suite) pkg() string {
	if s.Package != "" {
		return s.Package
	}
	return guestPackage
}

// wants reports whether the suite is for a kernel. chosen says that LAB_RUN names its tests, or that make test-full
// wants all.
func (s Suite) wants(k Kernel, chosen bool) bool {
	return (chosen || !s.Night) && (len(s.Series) == 0 || slices.Contains(s.Series, k.Series))
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

// works returns the work of a suite's test on a kernel: one, or its pieces.
func (s Suite) works(k Kernel, test string) ([]*work, error) {
	pieces := 1
	for _, d := range s.Deal {
		match, err := regexp.MatchString(d.Run, test)
		if err != nil {
			return nil, fmt.Errorf("suite %s: %w", s.Name, err)
		}
		if match {
			pieces = d.Pieces
		}
	}
	var all []*work
	for i := range pieces {
		all = append(all, &work{kernel: k, suite: s, test: test, piece: i + 1, pieces: pieces})
	}
	return all, nil
}

func (s Suite) timeout() time.Duration {
	if s.Timeout != 0 {
		return s.Timeout
	}
	return 10 * time.Minute
}

// pattern returns a -test.run expression for exactly these top-level tests; rest is that of their subtests.
func pattern(tests []string, rest string) string {
	p := "^(" + strings.Join(tests, "|") + ")$"
	if rest != "" {
		p += "/" + rest
	}
	return p
}
