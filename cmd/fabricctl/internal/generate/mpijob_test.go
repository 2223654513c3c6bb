package generate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What differs by pod is in a file that NCCL reads before a rank can start, with fabricctl in the image and without.
func TestWorkerOfMPIJob(t *testing.T) {
	text, err := Generate("mpijob", open(t, "h20"), options())
	if err != nil {
		t.Fatal(err)
	}
	pods := templates(documents(t, text)[0])
	if len(pods) != 1 {
		t.Fatalf("%d pods with devices", len(pods))
	}
	var worker struct {
		Spec struct {
			Containers []struct{ Command, Args []string }
		}
	}
	as(t, pods[0], &worker)
	c := worker.Spec.Containers[0]
	const tool = "#!/bin/sh\necho \"$*\" >&2\necho NCCL_IB_HCA==mlx5_0:1\n"
	for _, test := range []struct{ name, tool, etc, want, not string }{
		{"with fabricctl", tool, "etc", "etc/nccl.conf:NCCL_IB_HCA==mlx5_0:1", ""},
		{"for a user other than root", tool, "etc/nowhere", ".nccl.conf:NCCL_IB_HCA==mlx5_0:1", ""},
		{"without", "", "etc", "started", "nccl.conf:"},
		{"without a port", "#!/bin/sh\nexit 3\n", "etc", "no usable port", "NCCL_IB_HCA"},
	} {
		dir := t.TempDir()
		for _, d := range []string{"bin", "etc", "tmp"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if test.tool != "" {
			if err := os.WriteFile(filepath.Join(dir, "bin/fabricctl"), []byte(test.tool), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		script := strings.NewReplacer("/etc/nccl.conf", filepath.Join(dir, test.etc, "nccl.conf"), "/tmp/",
			dir+"/tmp/", "exec /usr/sbin/sshd -De",
			"cd "+dir+"; echo started; grep -H . etc/nccl.conf .nccl.conf 2>/dev/null; true").Replace(c.Args[0])
		cmd := exec.Command(c.Command[0], append(c.Command[1:], script)...)
		cmd.Env = []string{"HOME=" + dir, "PATH=" + dir + "/bin:/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), test.want) || !strings.Contains(string(out), "started") ||
			test.not != "" && strings.Contains(string(out), test.not) {
			t.Errorf("%s: %v\n%s", test.name, err, out)
		}
	}
}
