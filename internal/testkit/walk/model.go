package walk

import "slices"

// model is what the runtime knows, and what must follow from it. Where a kill, a pod or hardware leaves it open how a
// call ends, nothing is expected of that call: what must hold then is that every DEL ends well and the host is what it
// was.
type model struct {
	lives   []int // by pod: how many have died
	owed    []Attachment
	devices []*state
	spoiled []bool // by pod
	dies    bool
}

// state of a device.
type state struct {
	holder *Attachment
	sure   bool // holder is known
	clean  bool // only the plugin has changed the device
	absent bool // the hardware may have left
}

func newModel(w Walk) *model {
	m := &model{lives: make([]int, w.Pods), spoiled: make([]bool, w.Pods), dies: w.Dies}
	for range w.Devices {
		m.devices = append(m.devices, &state{sure: true, clean: true})
	}
	return m
}

func (s *state) doubt() { s.sure, s.clean = false, false }

// spoil says that something was done in a pod: to one of its devices, or to all over their names.
func (m *model) spoil(pod int, trick string) {
	m.spoiled[pod] = true
	for _, d := range m.devices {
		if !d.sure || d.holder != nil && d.holder.Pod == pod {
			d.clean = false
			d.absent = d.absent || m.dies && moves(trick)
		}
	}
}

func (m *model) endPod(pod int) {
	for _, d := range m.devices {
		if !d.sure || d.holder != nil && d.holder.Pod == pod {
			d.doubt()
			d.absent = d.absent || m.dies
		}
	}
	m.lives[pod]++
	m.spoiled[pod] = false
}

// call is the call that an operation means now.
func (m *model) call(o Op) Call {
	a := Attachment{Pod: o.Pod, Device: o.Device, Life: m.lives[o.Pod]}
	switch o.Kind {
	case GC:
		c := Call{Verb: "GC", Fault: o.Fault, At: o.At}
		for _, v := range m.owed {
			if v.Life == m.lives[v.Pod] {
				c.Valid = append(c.Valid, v)
			}
		}
		return c
	case Del:
		i := slices.IndexFunc(m.owed, func(x Attachment) bool { return x.Pod == o.Pod && x.Device == o.Device })
		if i < 0 && !o.Beside { // beside others it might be the attachment of one of them
			i = slices.IndexFunc(m.owed, func(x Attachment) bool { return x.Device == o.Device })
		}
		if i >= 0 {
			a = m.owed[i]
		}
		c := m.del(a)
		c.Fault, c.At = o.Fault, o.At
		return c
	case Check:
		return Call{Verb: "CHECK", Of: a, Netns: true}
	}
	if !slices.Contains(m.owed, a) {
		m.owed = append(m.owed, a)
	}
	return Call{Verb: "ADD", Of: a, Netns: true, Fault: o.Fault, At: o.At}
}

// del is the DEL of an attachment. That of a dead pod comes without a namespace, or with a path that the next pod has.
func (m *model) del(a Attachment) Call {
	return Call{Verb: "DEL", Of: a, Netns: a.Life == m.lives[a.Pod] || a.Life%2 == 0}
}

func (m *model) forget(a Attachment) {
	m.owed = slices.DeleteFunc(m.owed, func(x Attachment) bool { return x == a })
}

func (m *model) owes(device int) bool {
	return slices.ContainsFunc(m.owed, func(x Attachment) bool { return x.Device == device })
}

// answered takes note of an answer, and returns what should have come instead, "" if it may be so. plain says that the
// call ran without a fault and without another one on the same device.
func (m *model) answered(c Call, a Answer, plain bool) string {
	if c.Verb == "GC" {
		return m.collected(a, plain)
	}
	d := m.devices[c.Of.Device]
	known := plain && d.sure && d.clean && !d.absent
	switch c.Verb {
	case "ADD":
		return m.added(c.Of, d, a, known)
	case "DEL":
		return m.deleted(c.Of, d, a, known, plain)
	}
	ours := d.holder != nil && *d.holder == c.Of
	switch {
	case known && ours && !a.OK && !m.spoiled[c.Of.Pod]:
		return "nothing has changed since ADD"
	case known && !ours && a.OK:
		return "there is no such attachment"
	}
	return ""
}

func (m *model) added(of Attachment, d *state, a Answer, known bool) string {
	held := d.holder != nil
	others := slices.ContainsFunc(m.owed, func(x Attachment) bool { return x.Device == of.Device && x != of })
	switch {
	case a.OK && known && held:
		return "the device belongs to " + d.holder.ID()
	case !a.OK && known && !held && !others && !m.spoiled[of.Pod]:
		return "the device is on the host and no pod has it"
	case a.OK:
		d.holder, d.sure, d.clean = &of, true, d.clean && d.sure
	case !known:
		d.doubt()
	}
	return ""
}

func (m *model) deleted(of Attachment, d *state, a Answer, known, plain bool) string {
	switch {
	case !a.OK && known && !m.spoiled[of.Pod]:
		return "nothing stands in the way"
	case !a.OK:
		d.doubt()
		return ""
	}
	m.forget(of)
	switch {
	case !plain:
		d.doubt()
	case d.sure && d.holder != nil && *d.holder == of:
		d.holder = nil
	}
	if plain && !m.owes(of.Device) {
		m.home(d)
	}
	return ""
}

// home says that no attachment can have the device, and that nothing is left of its last holder.
func (*model) home(d *state) {
	d.holder = nil
	d.sure, d.clean = !d.absent, !d.absent
}

func (m *model) unplug(device int) {
	m.devices[device].doubt()
	m.devices[device].absent = true
}

func (m *model) plug(device int) {
	d := m.devices[device]
	if d.absent = false; !m.owes(device) {
		m.home(d)
	}
}

func (m *model) collected(a Answer, plain bool) string {
	dirty := false
	for _, d := range m.devices {
		dirty = dirty || !d.clean || d.absent
		if d.holder != nil && d.holder.Life != m.lives[d.holder.Pod] {
			d.doubt()
		}
	}
	if plain && !a.OK && !dirty && !slices.Contains(m.spoiled, true) {
		return "nothing stands in the way"
	}
	return ""
}

// overtaken notes that attachments are owed their DEL although one has succeeded: their ADD ran beside it, and may have
// come after it.
func (m *model) overtaken(calls []Call) {
	for _, c := range calls {
		if c.Verb == "ADD" && !slices.Contains(m.owed, c.Of) {
			m.owed = append(m.owed, c.Of)
		}
	}
}

// twice says that two attachments were given one device by calls that ran side by side.
func twice(calls []Call, answers []Answer) string {
	returned := func(device int) bool {
		return slices.ContainsFunc(calls, func(c Call) bool { return c.Verb == "DEL" && c.Of.Device == device })
	}
	for i, a := range calls {
		for j, b := range calls[:i] {
			if a.Verb == "ADD" && b.Verb == "ADD" && a.Of.Device == b.Of.Device && answers[i].OK && answers[j].OK &&
				!returned(a.Of.Device) {
				return a.Of.ID() + " and " + b.Of.ID() + " were both given " + a.Of.IfName()
			}
		}
	}
	return ""
}
