package nccl

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Formats that Print knows.
var Formats = []string{"export", "dotenv", "nccl.conf"}

// Print writes variables with their reasons: for eval in a shell, as a dotenv file, or as nccl.conf, which takes NCCL's
// own variables only.
func Print(format string, vars []Var, notes []string) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "# note: %s\n", quote.Comment(n))
	}
	for _, v := range vars {
		if format == "nccl.conf" && !strings.HasPrefix(v.Name, "NCCL_") {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", quote.Comment(v.Reason))
		switch format {
		case "export":
			fmt.Fprintf(&b, "export %s=%s\n", v.Name, quote.Single(v.Value))
		default:
			// These files have no quotes. Env takes no name that would need any.
			fmt.Fprintf(&b, "%s=%s\n", v.Name, quote.Terminal(v.Value))
		}
	}
	return b.String()
}
