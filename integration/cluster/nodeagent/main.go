// Command nodeagent runs in a node that is a guest of the lab, and gives the tests a way in: commands, and the state of
// the node as a value. It listens on a port that QEMU forwards into the network namespace of the tests and nowhere
// else. For pods it is what kube-proxy would be for the one service that matters: the API server's.
//
//	nodeagent ADDRESS SERVICE API-SERVER
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: nodeagent ADDRESS SERVICE API-SERVER")
		os.Exit(2)
	}
	go func() {
		fmt.Fprintln(os.Stderr, "nodeagent:", serve(os.Args[2], os.Args[3]))
		os.Exit(1)
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", run)
	mux.HandleFunc("GET /state", state)
	server := &http.Server{Addr: os.Args[1], Handler: mux, ReadHeaderTimeout: time.Minute}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "nodeagent:", err)
		os.Exit(1)
	}
}

// serve forwards connections to the service.
func serve(service, target string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", service)
	if err != nil {
		return err
	}
	for {
		in, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer in.Close()
			out, err := (&net.Dialer{}).Dial("tcp", target) // ends with its peer
			if err != nil {
				return
			}
			defer out.Close()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			_, _ = io.Copy(in, out)
		}()
	}
}

// run executes the posted shell script and answers with its output. The header X-Status has its exit status.
func run(w http.ResponseWriter, r *http.Request) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd := exec.CommandContext(r.Context(), "/bin/bash", "-c", string(script))
	cmd.WaitDelay = time.Second // a daemon that it has started may hold the pipe
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil { // it did not start
		out = []byte(err.Error())
	}
	w.Header().Set("X-Status", strconv.Itoa(cmd.ProcessState.ExitCode()))
	_, _ = w.Write(out) // fails if the tests have gone
}

// state answers with the links, addresses, routes, RDMA devices and files of the node.
func state(w http.ResponseWriter, _ *http.Request) {
	s, err := guest.Take()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // as above
}
