//go:build labguest

package guest

import (
	"os"
	"strings"
	"testing"
)

// logged adds and deletes an attachment with a log file, and checks whether the log went there.
func logged(t *testing.T, pod *Pod, file string, written bool) {
	t.Helper()
	before, existed := os.Lstat(file)
	a := interfaceOf(pod, "net1", network(config{
		"device": "ibs108", "logFile": file, "logLevel": "debug", "disableCheck": true, "ipMasq": true,
	}))
	out := a.add(t)
	data, err := readRegular(file)
	if written && (err != nil || !strings.Contains(string(data), "ipMasq")) {
		t.Errorf("log has %q, %v", data, err)
	}
	if !written && !strings.Contains(out.Stderr, "log goes to stderr") {
		t.Errorf("stderr has %q", out.Stderr)
	}
	if after, err := os.Lstat(file); !written && ((err == nil) != (existed == nil) ||
		err == nil && after.Mode().IsRegular() && after.Size() != before.Size()) {
		t.Errorf("%s was written: %v, before: %v", file, after, before)
	}
	a.del(t)
}

// The log is written as root at a path that a user chooses: only below the plugin's own directory, unless the node's
// owner says otherwise.
func TestPluginLogFile(t *testing.T) {
	S1(t)
	Unchanged(t)
	const own = "/var/log/fabric-cni"
	t.Cleanup(func() { os.RemoveAll(own) })
	pod := NewPod(t, "pod")
	for _, file := range []string{
		"/run/nologin", "/run/reboot-required", "/run/systemd/system/x.service", "/run/x.log", "/tmp/x.log",
		"/var/log/x.log", own, own + "/none/log", "/run/k8s.cni.cncf.io/devinfo/cni/x.json", "/etc/cni/log",
	} {
		t.Run(file, func(t *testing.T) { logged(t, pod, file, false) })
	}
	t.Run("own directory", func(t *testing.T) {
		os.RemoveAll(own)
		for range 2 { // the directory is made
			logged(t, pod, own+"/rail.log", true)
		}
		for path, mode := range map[string]os.FileMode{own: os.ModeDir | 0o700, own + "/rail.log": 0o600} {
			if st, err := os.Lstat(path); err != nil || st.Mode() != mode {
				t.Errorf("%s: %v, %v", path, st, err)
			}
		}
	})
	for _, file := range []string{"log", "/", "/tmp/../etc/log", "/tmp//x", "/tmp/x\n"} {
		a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "logFile": file}))
		wantError(t, a.call("ADD").Exec(t), 7, "logFile", "absolute path")
	}
}

// A directory that the policy names may be everybody's: what others put there leads nowhere.
func TestPluginLogFileOfPolicy(t *testing.T) {
	S1(t)
	Unchanged(t)
	const dir, victim = "/tmp/fabric-log", "/etc/cni/victim"
	policyFile(t, `{"logDirs": ["`+dir+`", "/run"]}`)
	t.Cleanup(func() { os.RemoveAll(dir) })
	shell(t, "mkdir -p "+dir+"/sub; cd "+dir+"; mkfifo fifo; ln -s "+victim+" link; ln -s /etc/cni linked; "+
		"echo secret >first; ln first second; ln -s sub inside")
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		file    string
		written bool
	}{
		"allowed":                     {dir + "/sub/log", true},
		"default is not added":        {"/var/log/fabric-cni/log", false},
		"symbolic link":               {dir + "/link", false},
		"linked directory":            {dir + "/linked/victim", false},
		"linked directory inside":     {dir + "/inside/log", false},
		"file of two names":           {dir + "/second", false},
		"pipe":                        {dir + "/fifo", false},
		"directory":                   {dir + "/sub", false},
		"no such directory":           {dir + "/none/log", false},
		"the plugin's state":          {"/run/fabric-cni/attachments/x@net1", false},
		"a name that is like another": {dir + "s", false},
	} {
		t.Run(name, func(t *testing.T) {
			logged(t, pod, c.file, c.written)
			if _, err := os.Lstat(victim); err == nil {
				t.Errorf("%s was written", victim)
				os.Remove(victim)
			}
		})
	}
}

// readRegular does not wait for the writer of a pipe.
func readRegular(file string) ([]byte, error) {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return os.ReadFile(file)
}
