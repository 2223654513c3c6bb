package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nodemode"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// here prepares this machine, or tells how it is.
func (m *nodeMode) here(cmd *cobra.Command) error {
	if err := m.checkMode(); err != nil {
		return err
	}
	if len(m.Nodes) > 0 {
		return fmt.Errorf("%w: --local is about this machine: unexpected argument %.253q", errUsage, m.Nodes[0])
	}
	if err := m.running("node-mode --local"); err != nil {
		return err
	}
	if m.enter {
		return enterNode(m)
	}
	l := nodemode.Here{Mode: m.Mode, Look: func() (*doctor.Host, error) {
		tree, _, problem, err := m.nodeTree()
		if err != nil || problem != nil {
			return nil, errors.Join(err, problem)
		}
		n, err := node.Open(tree, m.store())
		if err != nil {
			return nil, err
		}
		return doctor.CollectHost(tree, n), nil
	}}
	if m.dry {
		if err := l.Check(); err != nil {
			m.stdout.Println(err)
			return errFinding
		}
		m.stdout.Println(m.Mode)
		return nil
	}
	now, done, err := l.Set(cmd.Context())
	switch {
	case err != nil:
		return err
	case now == m.Mode:
		m.stdout.Printf("the mode is %s; %s\n", now, done)
		return nil
	case m.boot == "":
		m.stdout.Printf("%s; reboot for the mode %s\n", done, m.Mode)
		return nil
	}
	m.stdout.Printf("%s; reboot\n", done)
	return reboot(cmd.Context(), m.boot)
}

// enterNode becomes the same command in the mount namespace of the node's first process: files and programs are those
// of the node. It needs the node's PID namespace.
func enterNode(m *nodeMode) error {
	args := []string{"fabricctl", "node-mode", m.Mode, "--local"}
	if m.dry {
		args = append(args, "--dry-run")
	}
	if m.boot != "" {
		args = append(args, "--reboot="+m.boot)
	}
	done := make(chan error)
	netns.OnThread(func() { done <- execIn("/proc/1/ns/mnt", args) })
	return <-done
}

// execIn makes the process another program's, in a mount namespace. It returns if that can't be done; the thread ends
// with it.
func execIn(ns string, args []string) error {
	fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", ns, err)
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter %s: %w", ns, err)
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return fmt.Errorf("run fabricctl in %s: %w", ns, unix.Exec("/proc/self/exe", args, env))
}

// reboot reboots, unless this is another boot already, and never returns after that.
func reboot(ctx context.Context, boot string) error {
	if journal.BootID("/proc") != boot {
		return nil
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT) // a shutdown ends pods first; this one must not seem to have failed
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		if out, err := exec.CommandContext(ctx, "systemctl", "reboot").CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl reboot: %w: %.300s", err, out)
		}
		select {}
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	select {}
}
