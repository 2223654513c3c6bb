package cli_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cli"
	"github.com/fabric-cni/fabric-cni/internal/testkit/apiserver"
	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/plugins/fabric"
)

// inSandbox runs the tests on the real kernel, in network and mount namespaces of their own.
type inSandbox struct{ m *testing.M }

func (s inSandbox) Run() int { return sandbox.Inside(s.m, nil) }

func TestMain(m *testing.M) {
	ctl := func() {
		cli.BePatient()
		cli.BeQuick()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as main does
		defer stop()
		os.Exit(cli.Main(ctx, os.Args, "test"))
	}
	testscript.Main(inSandbox{m}, map[string]func(){
		"fabricctl":      ctl,
		"kubectl-fabric": ctl,
		"terminal":       terminal,
		"fabric": func() {
			os.Exit(
				fabric.Plugin{
					StateDir: os.Getenv("STATE_DIR"),
					Command:  os.Getenv("CNI_COMMAND"),
					Stdout:   os.Stdout,
					Stderr:   os.Stderr,
				}.Main(),
			)
		},
	})
}

// The scripts are the manual's examples too: each begins with what it shows.
func TestScripts(t *testing.T) { scripts(t, "testdata") }

// Scripts that compare the whole host run by themselves.
func TestScriptsAlone(t *testing.T) { scripts(t, "testdata/alone") }

func scripts(t *testing.T, dir string) {
	t.Helper()
	if err := sandbox.SetPolicy(`{"allowVirtual": true, "ipamDirs": ["/run/leases"]}`); err != nil {
		t.Fatal(err)
	}
	inTree, err := filepath.Abs("../../../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			server := apiserver.New(e.WorkDir)
			e.Defer(server.Close)
			e.Values["api"] = server
			e.Setenv("KUBECONFIG", "")
			e.Setenv("SCRIPTS", inTree)
			e.Setenv("GORACE", "atexit_sleep_ms=10") // each of some hundred processes sleeps a second otherwise
			return nil
		},
		UpdateScripts:      golden.Updating(),
		RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// api [VARIABLE=VALUE...] gives fabricctl the cluster for which bin/api and bin/pod answer, with these
			// variables; the namespace of its context is default.
			"api": func(ts *testscript.TestScript, _ bool, args []string) {
				server, ok := ts.Value("api").(*apiserver.Server)
				if !ok {
					ts.Fatalf("no API server")
				}
				for _, a := range args {
					name, value, _ := strings.Cut(a, "=")
					server.Set(name, value)
				}
				file, err := server.Kubeconfig("")
				ts.Check(err)
				ts.Setenv("KUBECONFIG", file)
				for _, script := range []string{"bin/api", "bin/pod"} {
					if _, err := os.Stat(ts.MkAbs(script)); err == nil {
						ts.Check(os.Chmod(ts.MkAbs(script), 0o755))
					}
				}
			},
			// netns NAME makes a network namespace for the rest of the script.
			"netns": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(ts.Exec("ip", "netns", "add", args[0]))
				ts.Defer(func() {
					if err := exec.Command("ip", "netns", "delete", args[0]).Run(); err != nil {
						ts.Logf("delete network namespace %s: %v", args[0], err) // the script has done it
					}
				})
			},
			// pod NAME DIR [VARIABLE=VALUE] plants what a process in a pod sees.
			"pod": func(ts *testscript.TestScript, _ bool, args []string) {
				p := machines.PodNamed(args[0])
				if p == nil {
					ts.Fatalf("no pod %q", args[0])
				}
				p.SetEnv(append(p.Env, args[2:]...)...)
				ts.Check(os.MkdirAll(ts.MkAbs(args[1]), 0o755))
				ts.Check(p.Plant(ts.MkAbs(args[1])))
			},
			// machine NAME DIR plants the recorded tree of a machine.
			"machine": func(ts *testscript.TestScript, _ bool, args []string) {
				m := machines.Named(args[0])
				if m == nil {
					ts.Fatalf("no machine %q", args[0])
				}
				ts.Check(os.MkdirAll(ts.MkAbs(args[1]), 0o755))
				ts.Check(m.Plant(ts.MkAbs(args[1])))
			},
		},
	})
}
