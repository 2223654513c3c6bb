package nccl

import (
	"fmt"
	"strings"
)

// Formats that Print knows.
var Formats = []string{"export", "dotenv", "nccl.conf"}

// Print writes variables with their reasons: for eval in a shell, as a dotenv file, or as nccl.conf, which takes NCCL's
// own variables only.
func Print(format string, vars []Var, notes []string) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "# note: %s\n", n)
	}
	for _, v := range vars {
		if format == "nccl.conf" && !strings.HasPrefix(v.Name, "NCCL_") {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", v.Reason)
		switch format {
		case "export":
			fmt.Fprintf(&b, "export %s='%s'\n", v.Name, strings.ReplaceAll(v.Value, "'", `'\''`))
		default:
			fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
		}
	}
	return b.String()
}
