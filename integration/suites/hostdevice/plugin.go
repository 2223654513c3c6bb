// Command hostdevice stands in for the plugin host-device in that plugin's own tests: each call goes to our plugin.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// The tests set these to directories of files that look like sysfs. Our plugin reads the kernel's.
var sysBusPCI, sysBusAuxiliary string

// call runs the plugin as a runtime does. A node's sysfs is that of its network namespace, which here is the test's.
func call(verb string, args *skel.CmdArgs) error {
	cmd := exec.Command("unshare", "-m", "sh", "-c", `mount -t sysfs sysfs /sys && exec "$SUITE_PLUGIN"`)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+args.ContainerID, "CNI_NETNS="+args.Netns,
		"CNI_IFNAME="+args.IfName, "CNI_ARGS="+args.Args, "CNI_PATH="+os.Getenv("SUITE_PATH"))
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(args.StdinData), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		var e types.Error
		if jerr := json.Unmarshal(out.Bytes(), &e); jerr != nil {
			return fmt.Errorf("%w: %q", err, out.String())
		}
		return &e
	}
	_, err := os.Stdout.Write(out.Bytes()) // the tests read it there
	return err
}

func cmdAdd(args *skel.CmdArgs) error    { return call("ADD", args) }
func cmdDel(args *skel.CmdArgs) error    { return call("DEL", args) }
func cmdCheck(args *skel.CmdArgs) error  { return call("CHECK", args) }
func cmdStatus(args *skel.CmdArgs) error { return call("STATUS", args) }

func main() {}
