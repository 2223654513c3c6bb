package dra

import "github.com/fabric-cni/fabric-cni/plugins/fabric"

// Plugin returns a Judge: the plugin's own decision, with the facts of this moment, in process. proc is a /proc that
// shows the processes of all pods; empty: /proc.
func Plugin(stateDir, policy, proc string) func([]Wish) ([]error, error) {
	p := fabric.Plugin{StateDir: stateDir, Policy: policy, Proc: proc}
	return func(wishes []Wish) ([]error, error) {
		list := make([]fabric.Wish, 0, len(wishes))
		for _, w := range wishes {
			list = append(list, fabric.Wish(w))
		}
		verdicts, err := p.Judge(list)
		out := make([]error, len(verdicts))
		for i := range verdicts {
			out[i] = verdicts[i].First()
		}
		return out, err
	}
}
