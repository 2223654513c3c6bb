package result

import "slices"

// Expected is what a result promises of one interface: what CHECK compares with the kernel.
type Expected struct {
	Interface Interface
	Addresses []Address
	Routes    []Route
}

// Expect tells what r promises of the interface called name in the sandbox (the path of a network namespace), and false
// when r does not list it. When no interface of that name has that very path, the only one of that name in any sandbox
// is meant: runtimes spell the path differently from call to call.
//
// A CNI result does not say which interface a route uses. A route belongs to the interface whose address has its
// gateway in its prefix; one without a gateway, or whose gateway is in no prefix, to the interface only if no other has
// addresses.
func (r *Result) Expect(name, sandbox string) (Expected, bool) {
	i := r.find(name, sandbox)
	if i < 0 {
		return Expected{}, false
	}
	e, alone := Expected{Interface: r.Interfaces[i]}, true
	for _, a := range r.Addresses {
		switch a.Interface {
		case i:
			e.Addresses = append(e.Addresses, a)
		case NoInterface:
		default:
			alone = false
		}
	}
	for _, t := range r.Routes {
		owner := slices.IndexFunc(r.Addresses, func(a Address) bool {
			return t.Gateway.IsValid() && a.Interface != NoInterface && a.Prefix.Contains(t.Gateway)
		})
		if (owner < 0 && alone && len(e.Addresses) > 0) || (owner >= 0 && r.Addresses[owner].Interface == i) {
			e.Routes = append(e.Routes, t)
		}
	}
	return e, true
}

func (r *Result) find(name, sandbox string) int {
	only := -1
	for i, f := range r.Interfaces {
		switch {
		case f.Name != name || f.Sandbox == "":
		case f.Sandbox == sandbox:
			return i
		case only >= 0:
			return -1
		default:
			only = i
		}
	}
	return only
}

// InSandbox lists the interfaces that are in a pod and not on the host. With a sandbox, those of another path are left
// out, unless none has that path.
func (r *Result) InSandbox(sandbox string) []Interface {
	var all, same []Interface
	for _, f := range r.Interfaces {
		if f.Sandbox == "" {
			continue
		}
		if all = append(all, f); f.Sandbox == sandbox {
			same = append(same, f)
		}
	}
	if len(same) > 0 {
		return same
	}
	return all
}
