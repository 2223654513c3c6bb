package dra

import "github.com/fabric-cni/fabric-cni/plugins/fabric"

// Preflight returns a Config.Preflight: the plugin's own decision, with the facts of this moment, in process. proc is a
// /proc that shows the processes of all pods; empty: /proc.
func Preflight(stateDir, policy, proc string) func([]fabric.PreflightRequest) ([]error, error) {
	p := fabric.Plugin{StateDir: stateDir, Policy: policy, Proc: proc}
	return func(requests []fabric.PreflightRequest) ([]error, error) {
		results, err := p.Preflight(requests)
		out := make([]error, len(results))
		for i := range results {
			out[i] = results[i].First()
		}
		return out, err
	}
}
