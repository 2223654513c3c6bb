// Package fabric is the CNI plugin: it turns the verbs of the specification into plans and carries them out. Only this
// package knows CNI error codes.
package fabric

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/calls"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Plugin is the plugin with the places it works in. The zero value of a field means its default.
type Plugin struct {
	StateDir string // journal.DefaultDir
	Policy   string // policy.DefaultPath
	Version  string
	Proc     string // a /proc that shows the processes of all pods; /proc
	Command  string // CNI_COMMAND
	Nested   bool   // ipam.DepthVariable is in the environment: started by its own IPAM plugin
	Trace    string // TraceID of the call; empty: none
	Stdout   io.Writer
	Stderr   io.Writer
}

// maxStdin bounds a configuration; Multus's own limit for an annotation is a quarter of it.
const maxStdin = 1 << 20

// Main answers one CNI call from the environment and standard input, and returns the exit status.
func (p Plugin) Main() int {
	p = p.withDefaults()
	began := time.Now()
	err := p.main()
	p.note(began, err)
	if err != nil {
		if perr := err.Print(); perr != nil {
			fmt.Fprintln(p.Stderr, perr)
		}
		return 1
	}
	return 0
}

// note counts a call for the agent.
func (p Plugin) note(began time.Time, err *types.Error) {
	c := calls.Call{Verb: p.Command, Took: time.Since(began)}
	if err != nil {
		c.Code = err.Code
	}
	calls.Note(p.StateDir, c)
}

// withDefaults fills in where the plugin works unless it was said otherwise.
func (p Plugin) withDefaults() Plugin {
	if p.StateDir == "" {
		p.StateDir = journal.DefaultDir
	}
	if p.Policy == "" {
		p.Policy = policy.DefaultPath
	}
	if p.Proc == "" {
		p.Proc = "/proc"
	}
	return p
}

func (p Plugin) main() *types.Error {
	if p.Command != "VERSION" && p.Command != "" {
		if err := limitStdin(); err != nil {
			return err
		}
	}
	return skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    p.verb(add),
		Del:    p.verb(del),
		Check:  p.verb(check),
		GC:     p.verb(gc),
		Status: p.verb(status),
	}, version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"), "CNI plugin fabric "+p.Version)
}

// limitStdin reads standard input up to the limit and puts it back for skel, which would read without end.
func limitStdin() *types.Error {
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdin+1))
	if err != nil {
		return types.NewError(types.ErrIOFailure, fmt.Sprintf("fabric: could not read standard input: %v", err), "")
	}
	if len(b) > maxStdin {
		const msg = "fabric: could not read the configuration: standard input is longer than %d bytes"
		return types.NewError(types.ErrDecodingFailure, fmt.Sprintf(msg, maxStdin), "")
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return types.NewError(types.ErrIOFailure, fmt.Sprintf("fabric: could not keep standard input: %v", err), "")
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err := f.WriteAt(b, 0); err != nil {
		return types.NewError(types.ErrIOFailure, fmt.Sprintf("fabric: could not keep standard input: %v", err), "")
	}
	os.Stdin = f
	return nil
}

// verb wraps a handler: arguments are parsed, errors get their code, a panic becomes an error.
func (p Plugin) verb(handle func(*call) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if r := recover(); r != nil {
				msg := fmt.Sprintf("fabric: internal error: %v; please report it", r)
				err = types.NewError(types.ErrInternal, msg, "")
			}
		}()
		env := netconf.Env{Command: p.Command, ContainerID: args.ContainerID, Netns: args.Netns,
			IfName: args.IfName, Args: args.Args, Path: args.Path}
		cfg, err := netconf.Parse(args.StdinData, env)
		if err != nil {
			return typed("read the configuration", err)
		}
		c := p.newCall(cfg, env)
		defer c.close()
		c.openLog()
		if err := c.enroll(); err != nil {
			return typed("begin the ADD of "+c.key.IfName+" of "+c.who(), err)
		}
		c.logIgnored()
		if p.Nested {
			return c.nested()
		}
		if err := handle(c); err != nil {
			e := typed(c.doing, err)
			if c.cfg.LogFile != "" { // the runtime has it from stdout already
				c.log.Error(e.Error())
			}
			return e
		}
		return nil
	}
}

// nested answers a call that comes from an IPAM plugin of this plugin: a loop, which ends here. As such an ADD never
// succeeds, there is nothing to take back.
func (c *call) nested() error {
	if c.Command == "DEL" || c.Command == "GC" {
		return nil
	}
	return typed("run inside of its own IPAM plugin", &netconf.Error{
		Code: netconf.CodeConfig, Field: "ipam.type", Value: strconv.Quote(c.cfg.IPAM.Type),
		Problem: "leads back to this plugin (" + ipam.DepthVariable + " is set)",
		Hint:    "name an IPAM plugin that calls no other plugin",
	})
}

// print writes a result without mixing it with anything else.
func (s *session) print(write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if _, err := s.Stdout.Write(b.Bytes()); err != nil {
		return &failure{code: types.ErrIOFailure, err: fmt.Errorf("write the result: %w", err)}
	}
	return nil
}
