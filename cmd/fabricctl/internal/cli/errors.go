package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses; docs/fabricctl.md lists them.
const (
	exitOK      = 0
	exitFailed  = 1 // could not be done
	exitUsage   = 2 // the command line is wrong
	exitFinding = 3 // done, and something is wrong with what was looked at
)

// errUsage marks an error in the command line.
var errUsage = errors.New("usage")

// errFinding ends a command whose output has the findings already.
var errFinding = errors.New("finding")

// isUsage returns whether the command line is wrong. Cobra has no type for some of its own errors.
func isUsage(err error) bool {
	text := err.Error()
	return errors.Is(err, errUsage) || strings.HasPrefix(text, "unknown command") ||
		strings.HasPrefix(text, "required flag") || strings.HasPrefix(text, "if any flags in the group")
}

// argsBetween checks the number of arguments.
func argsBetween(least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%w: %d arguments, %d at least", errUsage, len(args), least)
		case len(args) > most:
			return fmt.Errorf("%w: unexpected argument %q", errUsage, args[most])
		}
		return nil
	}
}

// oneOf checks the value of a flag that allows only a few.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%w: --%s %q: want one of %s", errUsage, flag, value, strings.Join(allowed, ", "))
}
