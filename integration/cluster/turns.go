package cluster

import (
	"flag"
	"fmt"
	"os"
	"regexp"
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
		"^lab2$/^(Multus_is_absent|shared|shared_by_claims)$",
		"^lab2$/^traffic$",
		"^lab2$/^claims_with_GPUs$",
	}
	rigGroups = []string{
		"TestWalkInstall",
		"TestThickMultus|TestSandboxes",
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

// kubernetesTests is of the version that each landing runs, and takes six minutes: too long for a landing.
const kubernetesTests = "TestKubernetesDRA"

// runsKubernetesTests reports whether this run has them: it asks for them by name, or for all.
func runsKubernetesTests() bool {
	if run := flagValue("test.run"); run != "" {
		named, err := regexp.MatchString(run, kubernetesTests)
		return named && err == nil
	}
	return share.All() && os.Getenv("FABRIC_KUBERNETES") == ""
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
	if !runsKubernetesTests() {
		skip = strings.TrimPrefix(skip+"|^"+kubernetesTests+"$", "|")
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
