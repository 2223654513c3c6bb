// Command peer is a stand-in for another CNI plugin: it makes the plugin's kernel calls, and executes the IPAM plugin
// static between them, as it does. See bare.Peer.
//
//	peer BIN JOB
//
// BIN has static. JOB is a bare.Peer in JSON. The rest comes from the CNI_* variables; stdin goes to static.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
)

func main() {
	runtime.LockOSThread() // bare.Peer changes the thread's namespace
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("peer: %d arguments, want 2", len(args))
	}
	var p bare.Peer
	if err := json.Unmarshal([]byte(args[1]), &p); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	conf, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	p.IPAM = func() error {
		cmd := exec.Command(filepath.Join(args[0], "static"))
		cmd.Stdin = bytes.NewReader(conf)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("static: %w: %s", err, out)
		}
		return nil
	}
	if os.Getenv("CNI_COMMAND") == "DEL" {
		return p.Del()
	}
	return p.Add()
}
