package nodemode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Here is what is to be done on this machine.
type Here struct {
	Mode string
	Look func() (*doctor.Host, error)

	file string // File, but for tests
}

// Errors of a machine.
var (
	errNoRDMA = errors.New("the kernel has no RDMA subsystem, or an old one without modes: load ib_core, of Linux " +
		"5.2 or later")
	errBuiltIn = errors.New("ib_core is built into the kernel, which reads its mode from the kernel command line " +
		"only: set ib_core.netns_mode there")
)

// needs tells what the machine lacks for the mode; empty: it has it, and keeps it over a boot.
func (l *Here) needs(h *doctor.Host) string {
	next, where, decided := h.NextMode()
	switch {
	case h.Node.RDMAMode != l.Mode && (next != l.Mode || !decided):
		return fmt.Sprintf("the mode is %s, %s", h.Node.RDMAMode, where)
	case next != l.Mode:
		return fmt.Sprintf("the mode is %s, and after a boot %s: %s", h.Node.RDMAMode, next, where)
	case h.InitramfsOld && !h.ModeOnCmdline():
		return fmt.Sprintf("%s is older than %s", h.Initramfs, h.ModeFile)
	}
	return ""
}

// Check returns an error if the machine is not in the mode, or would not be after a boot.
func (l *Here) Check() error {
	h, err := l.look()
	if err != nil {
		return err
	}
	if text := l.needs(h); text != "" {
		return errors.New(text)
	}
	if h.Node.RDMAMode != l.Mode {
		_, where, _ := h.NextMode()
		return fmt.Errorf("the mode is %s, although %s: a driver container may load ib_core with its own modprobe.d, "+
			"or the initramfs has another netns_mode; set ib_core.netns_mode on the kernel command line",
			h.Node.RDMAMode, where)
	}
	return nil
}

func (l *Here) look() (*doctor.Host, error) {
	h, err := l.Look()
	if err == nil && h.Node.RDMAMode == "" {
		err = errNoRDMA
	}
	return h, err
}

// Set has the machine boot in the mode. now is the mode that it is in; done is what was done, or why nothing.
func (l *Here) Set(ctx context.Context) (now, done string, err error) {
	h, err := l.look()
	if err != nil {
		return "", "", err
	}
	now = h.Node.RDMAMode
	next, where, _ := h.NextMode()
	switch {
	case l.needs(h) == "":
		return now, where, nil
	case h.ModeOnCmdline() && next != l.Mode:
		return now, "", fmt.Errorf("%s, which wins over modprobe.d: change it there", where)
	case h.BuiltIn:
		return now, "", errBuiltIn
	}
	rebuild, err := rebuilder(h)
	if err != nil {
		return now, "", err
	}
	undo, err := l.write()
	if err != nil {
		return now, "", err
	}
	if h, err = l.look(); err == nil {
		if next, where, _ = h.NextMode(); next != l.Mode {
			err = fmt.Errorf("%s wins over %s: remove its netns_mode", h.ModeFile, l.path())
		}
	}
	if err != nil {
		return now, "", errors.Join(err, undo())
	}
	done = where
	if rebuild == nil {
		return now, done + "; no initramfs of this kernel is in /boot", nil
	}
	if err := run(ctx, rebuild); err != nil {
		return now, "", fmt.Errorf("%s is written, and the initramfs could not be rebuilt: %w", l.path(), err)
	}
	if h, err = l.look(); err == nil && h.InitramfsOld {
		err = fmt.Errorf("%s has succeeded, and %s is still older than %s: rebuild it by the means of this system",
			strings.Join(rebuild, " "), h.Initramfs, h.ModeFile)
	}
	return now, done + "; " + strings.Join(rebuild, " "), err
}

func (l *Here) path() string {
	if l.file != "" {
		return l.file
	}
	return File
}

// write writes the file, and returns what undoes it.
func (l *Here) write() (undo func() error, err error) {
	was, err := os.ReadFile(l.path())
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return nil, err
	}
	f := atomicfile.File{Path: l.path(), Mode: 0o644, Sync: atomicfile.SyncDir}
	text := "# RDMA network namespace mode " + l.Mode + ", written by fabricctl node-mode\n" +
		"options ib_core netns_mode=" + doctor.NetnsModes[l.Mode] + "\n"
	return func() error {
		if gone {
			return os.Remove(l.path())
		}
		return f.Write(was)
	}, f.Write([]byte(text))
}

// rebuilders are the programs that rebuild every initramfs, by their distributions: Debian and Ubuntu; RHEL, Fedora and
// SLES; Arch.
var rebuilders = [][]string{
	{"update-initramfs", "-u", "-k", "all"},
	{"dracut", "--force", "--regenerate-all"},
	{"mkinitcpio", "-P"},
}

// rebuilder finds the one of this system; nil: the kernel boots without an initramfs, as far as /boot shows.
func rebuilder(h *doctor.Host) ([]string, error) {
	for _, r := range rebuilders {
		if path, err := exec.LookPath(r[0]); err == nil {
			return append([]string{path}, r[1:]...), nil
		}
	}
	if h.Initramfs == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("none of update-initramfs, dracut and mkinitcpio is installed, to rebuild %s with the "+
		"mode: set ib_core.netns_mode on the kernel command line instead", h.Initramfs)
}

// maxOutput bounds what is told of a program that failed.
const maxOutput = 600

func run(ctx context.Context, args []string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String())
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, quote.Clip(text[max(0, len(text)-maxOutput):],
			maxOutput))
	}
	return nil
}
