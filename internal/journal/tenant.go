package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The last tenant of a VF is the namespace of the pod that had it last, empty where the runtime names none. The note is
// a symbolic link: tenants/<bus>+<address> to namespace=<name>. There is one for each VF that a pod has had since boot.
func tenantPath(top, deviceKey string) string {
	return filepath.Join(top, "tenants", fileOf(deviceKey))
}

const tenantIs = "namespace="

// maxTenant is how much of a name counts: Kubernetes gives namespaces up to 63 characters (RFC 1123, DNS label).
const maxTenant = 253

// NoteTenant notes to whose pod a VF goes. The caller holds the device's lock.
func (s Store) NoteTenant(deviceKey, namespace string) error {
	namespace = namespace[:min(len(namespace), maxTenant)]
	if was, ok, err := s.Tenant(deviceKey); err == nil && ok && was == namespace {
		return nil
	}
	if err := link(s.Dir, tenantPath(s.Dir, deviceKey), tenantIs+namespace); err != nil {
		return fmt.Errorf("note the tenant of %s: %w", deviceKey, err)
	}
	return nil
}

// Tenant returns the namespace of the pod that had a VF last, and false when none had it since boot. For a damaged note
// it returns what no namespace is called.
func (s Store) Tenant(deviceKey string) (namespace string, noted bool, err error) {
	target, err := os.Readlink(tenantPath(s.Dir, deviceKey))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil && !isForeign(err) {
		return "", false, fmt.Errorf("read the tenant of %s: %w", deviceKey, err)
	}
	name, ok := strings.CutPrefix(target, tenantIs)
	if !ok {
		return "?", true, nil
	}
	return name, true, nil
}
