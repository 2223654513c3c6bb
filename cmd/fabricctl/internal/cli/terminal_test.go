package cli_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is a program of the scripts: terminal FILE COMMAND [ARG...] runs a command with a terminal of its own, as
// /dev/tty and standard input, and writes all that it printed there to FILE. testscript's ttyin closes the terminal
// as soon as the command has ended, so that ttyout may lack the end of what it printed.
func terminal() {
	err := onTerminal(os.Args[1], exec.Command(os.Args[2], os.Args[3:]...))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(125)
	}
}

func onTerminal(file string, cmd *exec.Cmd) error {
	shown, err := os.Create(file)
	if err != nil {
		return err
	}
	defer shown.Close()
	ours, theirs, err := openPTY()
	if err != nil {
		return err
	}
	defer ours.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	// EIO is the end of file: the last process has closed the other side, and all that it wrote has been read
	// (n_tty_read of Linux).
	if _, err := io.Copy(shown, ours); err != nil && !errors.Is(err, unix.EIO) {
		return err
	}
	return cmd.Wait()
}

// openPTY opens a new pseudo terminal.
func openPTY() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		ours.Close()
	}
	return ours, theirs, err
}
