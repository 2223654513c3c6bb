package cluster

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

// What takes turns: one of the groups of parts of TestNodes for each landing, and some of the longer tests on the node
// rig. All others always run. internal/testkit/share has the rest of it.
var (
	nodeGroups = []string{
		"^walk$",
		"^mode$",
		"^lab1$/^(fabricctl|waiting,_then_forced_out|killed)$",
		"^lab1$/^reboot$",
		"^lab1$/^claims$",
		"^lab1$/^claims_alone$",
		"^lab1$/^ports$",
		"^lab2$/^(Multus_is_absent|shared|shared_by_claims)$",
		"^lab2$/^traffic$",
		"^lab2$/^claims_with_GPUs$",
	}
	rigGroups = []string{
		"TestWalkInstall",
		"TestThickMultus|TestSandboxes|TestMultus",
		"TestCtlVerify|TestCtlVerifyDeploy",
		"TestCtlInventory|TestCtlGenerate|TestCtlGeneratedNetwork",
		"TestCtlDoctorCluster|TestCtlDoctorPod",
	}
)

const (
	rigTurns   = 2                // how many of rigGroups a landing runs
	groupTakes = 10 * time.Minute // the longest of nodeGroups, on two cores
)

// turn is what -test.run has to ask of TestNodes in this run: nothing, for all of it, or a group of its parts. Not ok:
// there is no time for any.
func turn() (run string, ok bool) {
	picked := share.Pick(1, nodeGroups...)
	if flagValue("test.run") != "" || len(picked) == len(nodeGroups) {
		return "", true
	}
	if share.NoTime("cluster: TestNodes", min(machine.scaled(groupTakes), 2*groupTakes)) {
		return "", false
	}
	fmt.Printf("cluster: of the %d groups of parts of TestNodes this landing runs %s; test-full has the others\n",
		len(nodeGroups), picked[0])
	return "/" + picked[0], true
}

// suiteTests run tests of others, longer than a landing has time for: by name or in test-full, with the Kubernetes that
// each landing runs. With the argument of scripts/cluster-setup.sh that compiles them.
var suiteTests = map[string]string{
	"TestKubernetesDRA": "dra",
	"TestWhereabouts":   "whereabouts",
}

// suitesToRun are those of suiteTests that this run has: it asks for them by name, or for all.
func suitesToRun() (tests []string) {
	run := flagValue("test.run")
	for _, name := range slices.Sorted(maps.Keys(suiteTests)) {
		named, err := regexp.MatchString(run, name)
		if run != "" && named && err == nil || run == "" && share.All() && os.Getenv("FABRIC_KUBERNETES") == "" {
			tests = append(tests, name)
		}
	}
	return tests
}

// takeTurns leaves tests on the node rig out, unless -test.run or -test.skip is set.
func takeTurns() error {
	if flagValue("test.run") != "" || flagValue("test.skip") != "" {
		return nil
	}
	skip, note := share.Rotate("cluster", rigTurns, rigGroups...)
	if note != "" {
		fmt.Println(note)
	}
	if len(suitesToRun()) == 0 {
		skip = strings.TrimPrefix(skip+"|^("+strings.Join(slices.Collect(maps.Keys(suiteTests)), "|")+")$", "|")
	}
	if skip == "" {
		return nil
	}
	return flag.Set("test.skip", skip)
}

// asked reports whether -test.run may match a part of TestNodes, or a part of that.
func asked(names ...string) bool {
	patterns := strings.Split(flagValue("test.run"), "/")[1:]
	for i, name := range names {
		name = strings.ReplaceAll(name, " ", "_")
		if i < len(patterns) && !regexp.MustCompile(patterns[i]).MatchString(name) {
			return false
		}
	}
	return true
}
