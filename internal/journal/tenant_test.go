package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTenant(t *testing.T) {
	s := Store{t.TempDir()}
	want := func(deviceKey, namespace string, noted bool) {
		t.Helper()
		if got, ok, err := s.Tenant(deviceKey); err != nil || ok != noted || got != namespace {
			t.Errorf("%s: %q, %t, %v, want %q, %t", deviceKey, got, ok, err, namespace, noted)
		}
	}
	const other = "pci/0000:3b:00.5"
	want(deviceKey, "", false)
	for _, name := range []string{"team-a", "", "team-b"} {
		must(t, s.NoteTenant(deviceKey, name))
		want(deviceKey, name, true)
	}
	want(other, "", false)
	must(t, s.NoteTenant(other, strings.Repeat("n", 10000)))
	want(other, strings.Repeat("n", maxTenant), true)
	want(deviceKey, "team-b", true)
}

// Of a damaged note it is not known who the tenant was: it is no namespace's. It goes with the next one.
func TestTenantDamaged(t *testing.T) {
	s := Store{t.TempDir()}
	path := tenantPath(s.Dir, deviceKey)
	file := func() error { return os.WriteFile(path, []byte("namespace=team-a"), 0o600) }
	for name, damage := range map[string]func() error{
		"file":         file,
		"directory":    func() error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"another link": func() error { return os.Symlink("team-a", path) },
		"no directory": func() error {
			must(t, os.RemoveAll(filepath.Dir(path)))
			return os.WriteFile(filepath.Dir(path), nil, 0o600)
		},
	} {
		must(t, os.RemoveAll(filepath.Dir(path)))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, damage())
		if got, noted, err := s.Tenant(deviceKey); err != nil || !noted || got == "team-a" || got == "" {
			t.Errorf("%s: %q, %t, %v", name, got, noted, err)
		}
		must(t, s.NoteTenant(deviceKey, "team-a"))
		if got, noted, err := s.Tenant(deviceKey); err != nil || !noted || got != "team-a" {
			t.Errorf("%s, noted again: %q, %t, %v", name, got, noted, err)
		}
	}
}
