package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// isBreak reports what an error of several lines has between its sentences.
func isBreak(r rune) bool { return r == '\n' || r == '\t' }

// wants are what the values of flags have to be, by the type that pflag calls them.
var wants = map[string]string{
	"int": "a whole number", "float64": "a number such as 90 or 12.5", "bool": "true or false",
	"duration": "a duration such as 90s or 3m",
}

// flagError says of a flag what its value was and what is allowed, in other words than those of the Go parser.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if want := wants[f.Value.Type()]; want != "" {
			return fmt.Errorf("%w: --%s %.300q: want %s", errUsage, f.Name, invalid.GetValue(), want)
		}
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// prefixOf parses the value of a flag that is a range of addresses.
func prefixOf(flag, value string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		return p, fmt.Errorf("%w: --%s %.300q: want a range of addresses such as 198.18.0.0/16 or fd00:1::/64",
			errUsage, flag, value)
	}
	return p, nil
}

// argsBetween checks the number of arguments. What is missing is called as in the usage of the command.
func argsBetween(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%w: %s is missing", errUsage, strings.Fields(c.Use)[1+len(args)])
		case len(args) > most:
			return fmt.Errorf("%w: unexpected argument %q", errUsage, args[most])
		}
		return nil
	}
}

// oneOf checks the value of a flag that allows only a few, in whatever case and with dashes or without: it becomes the
// one that is meant.
func oneOf(flag string, value *string, allowed ...string) error {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	for _, a := range allowed {
		if plain(a) == plain(*value) {
			*value = a
			return nil
		}
	}
	return fmt.Errorf("%w: --%s %q: want one of %s", errUsage, flag, *value, strings.Join(allowed, ", "))
}
