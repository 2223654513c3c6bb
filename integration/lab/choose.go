package lab

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

// sampleKernel is the kernel of the sample.
const sampleKernel = "6.12"

// exhibit is a part of the sample: names of work, and what they show.
type exhibit struct {
	shows string
	works []string
}

// sample is what FABRIC_LAB_SAMPLE=1 (`make test`) runs, on one kernel. The suites share few machines, so that
// little of the time is boots.
var sample = []exhibit{
	{"what the kernel does to moved devices", []string{
		"TestFactMoveDestroysIPoIB", "TestFactMoveLosesConfiguration", "TestFactNetdevFirstIsLost",
		"TestFactNetnsDeletionReturnsIPoIB", "TestFactNetnsDeletionReturnsRDMA", "TestFactMoveAndRename",
	}},
	{"attaching InfiniBand, PKey children and RoCE", []string{
		"TestFabricPingOverMovedHCAs", "TestPluginRDMAExclusive", "TestPluginChildrenPing", "TestPluginChildSettings",
		"TestPluginRailsOnOneSubnet", "TestPluginCheckOfAChild", "TestPluginGC", "TestReturnDamagedRoCE",
	}},
	{"returns after a reboot, a late DEL, a path used again", []string{
		"TestReturnAfterReboot", "TestReturnLate", "TestReturnPathReused", "TestPeerKilledThenAddedAgain",
	}},
	{"deaths at points of ADD and DEL", []string{
		"TestMatrixExclusiveIPoIBAdd-1of2", "TestMatrixExclusiveIPoIBDel-1of2",
	}},
	{"VFs", []string{"TestVFGUID", "TestVFDeviceInfo", "TestTrafficVF"}},
	{"shared mode", []string{"TestSharedNetdevMoves", "TestSharedPluginRDMA", "TestSharedPluginNetnsGone"}},
	{"DRA's claims", []string{"TestPluginClaims"}},
	{"RDMA between pods", []string{"TestTrafficFirst"}},
}

// always matches the tests that a share has on each of its kernels: where kernels differ, and the core of what comes
// back.
var always = regexp.MustCompile(`^Test(Fact|RDMAName|Return(AfterReboot|Late|PathReused)$)`)

// A share takes bundles, each of tests that one guest can run, until their expected seconds are shareSeconds. Within a
// bundle a boot pays for several tests; and however long a test is, its chance is that of any other one.
const (
	shareSeconds  = 30 * 60
	bundleSeconds = 90
)

// sampled reports whether a sample is wanted, and asked whether LAB_RUN or make test-full chose tests.
func sampled() bool { return os.Getenv("FABRIC_LAB_SAMPLE") != "" }
func asked() bool   { return os.Getenv("FABRIC_LAB_RUN") != "" || full() }

// inSample keeps the work of the sample.
func inSample(all []*work) []*work {
	return slices.DeleteFunc(all, func(w *work) bool {
		return w.kernel.Series != sampleKernel ||
			!slices.ContainsFunc(sample, func(e exhibit) bool { return slices.Contains(e.works, w.name()) })
	})
}

// sampleLine says what the sample shows.
func sampleLine() string {
	var shows []string
	for _, s := range sample {
		shows = append(shows, s.shows)
	}
	return "lab: a sample on kernel " + sampleKernel + ": " + strings.Join(shows, "; ") + "\n"
}

// takeShare returns what this run does of the work, and what it leaves out.
func takeShare(all []*work, seconds float64) (mine, left []*work) {
	machines := make(map[string]bool)
	add := func(w *work) {
		if m := machine(w.kernel, w.suite); !machines[m] {
			machines[m] = true
			seconds -= bootSeconds
		}
		seconds -= w.expected
		mine = append(mine, w)
	}
	var rest []*work
	for _, w := range all {
		if w.first = always.MatchString(w.test); w.first {
			add(w)
		} else {
			rest = append(rest, w)
		}
	}
	for _, b := range bundles(rest) {
		if seconds <= 0 {
			left = append(left, b...)
			continue
		}
		for _, w := range b {
			add(w)
		}
	}
	return mine, left
}

// bundles deals the work of each machine to bundles of about bundleSeconds, in an order that the seed decides.
func bundles(all []*work) (list [][]*work) {
	byID := make(map[string]*work)
	var ids []string
	for _, w := range all {
		byID[w.id()] = w
		ids = append(ids, w.id())
	}
	open := make(map[string]int) // by machine: its bundle that has room, plus one
	taken := make(map[int]float64)
	for _, id := range share.Order(ids) {
		w := byID[id]
		m := machine(w.kernel, w.suite)
		i := open[m] - 1
		if i < 0 || taken[i]+w.expected > bundleSeconds {
			i = len(list)
			list = append(list, nil)
			open[m] = i + 1
		}
		list[i] = append(list[i], w)
		taken[i] += w.expected
	}
	byName := make(map[string][]*work)
	var names []string
	for _, b := range list {
		name := "bundle of " + b[0].id()
		byName[name] = b
		names = append(names, name)
	}
	for i, name := range share.Order(names) {
		list[i] = byName[name]
	}
	return list
}

// leftOut counts what a run has left out, "" for nothing.
func leftOut(left []*work) string {
	if len(left) == 0 {
		return ""
	}
	count := make(map[[2]string]int)
	for _, w := range left {
		count[[2]string{w.kernel.String(), w.suite.Name}]++
	}
	keys := make([][2]string, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var b strings.Builder
	fmt.Fprintf(&b, "lab: %d tests are left out, make test-full has them:", len(left))
	kernel := ""
	for _, k := range keys {
		if k[0] != kernel {
			kernel = k[0]
			b.WriteString(" on " + kernel + ":")
		}
		fmt.Fprintf(&b, " %s %d", k[1], count[k])
	}
	return b.String() + "\n"
}
