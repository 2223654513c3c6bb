package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// AllowVirtual is a node policy for tests that give veths and the like to the plugin: they stand in for hardware.
const AllowVirtual = `{"allowVirtual": true}`

// PolicyFile writes a node policy to a file of the test's own, for fabric.Plugin and the agent, and returns its path.
func PolicyFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// SetPolicy makes a policy that of the node, for all programs that are run from now on: in the sandbox /etc is private.
func SetPolicy(text string) error {
	if os.Getenv(inside) == "" {
		return errors.New("sandbox: the machine's own policy is not replaced")
	}
	if err := os.MkdirAll(filepath.Dir(policy.DefaultPath), 0o755); err != nil {
		return err
	}
	return os.WriteFile(policy.DefaultPath, []byte(text), 0o600)
}
