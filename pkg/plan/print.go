package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// The netdev is $DEV in commands that follow a move: its name is known only then.

func in(s Side, cmd string) string {
	if s == Pod {
		return "ip netns exec $POD " + cmd
	}
	return cmd
}

// words quotes each word of a text for a shell: the zone of an address may be any text.
func words(s string) string {
	list := strings.Fields(s)
	for i := range list {
		list[i] = quote.Shell(list[i])
	}
	return strings.Join(list, " ")
}

func (s MoveRDMA) String() string {
	target, name, first := "$POD", quote.Shell(s.HCA.Name), ""
	if s.To == Host {
		target = "1"
	}
	if s.Name != "" { // one message since 7.3, for which the rdma command has no spelling
		was := name
		name = quote.Shell(s.Name)
		first = in(s.To.Other(), "rdma dev set "+was+" name "+name) + "; "
	}
	return first + in(s.To.Other(), "rdma dev set "+name+" netns "+target)
}

func (s RenameRDMA) String() string {
	return in(s.In, "rdma dev set "+quote.Shell(s.From)+" name "+quote.Shell(s.To))
}

func (s SetDIM) String() string {
	on := "off"
	if s.On {
		on = "on"
	}
	return in(Host, "rdma dev set "+quote.Shell(s.HCA.Name)+" adaptive-moderation "+on)
}

func (s SetAutoCounters) String() string {
	by := []string{"off", "type on", "pid on", "type,pid on"}
	port := fmt.Sprintf("%s/%d", quote.Shell(s.HCA.Name), s.Port)
	return in(Host, "rdma statistic qp set link "+port+" auto "+by[s.Mask&3])
}

func (s SetCM) String() string {
	dir := "/sys/kernel/config/rdma_cm/" + quote.Shell(s.HCA.Name)
	port := fmt.Sprintf("%s/ports/%d", dir, s.Port)
	mode := ""
	if s.To.RoCE != "" {
		mode = fmt.Sprintf("; echo %s > %s/default_roce_mode", quote.Shell(s.To.RoCE), port)
	}
	return fmt.Sprintf("mkdir -p %s%s; echo %d > %s/default_roce_tos", dir, mode, s.To.TOS, port)
}

func (s SetTrafficClass) String() string {
	file := fmt.Sprintf("/sys/class/infiniband/%s/tc/%d/traffic_class", quote.Shell(s.HCA.Name), s.Port)
	return in(s.In, fmt.Sprintf("sh -c 'echo %d > %s'", s.To, file))
}

func (s AwaitNetdev) String() string {
	return "# wait for the netdev of " + quote.Comment(s.Netdev.Address.String()) + " to be recreated, here or in $POD"
}

func (s Revive) String() string {
	return "ip netns add $TMP; rdma dev set " + quote.Shell(s.HCA.Name) + " netns $TMP; ip netns del $TMP"
}

func (s MoveNetdev) String() string {
	target := "$POD"
	if s.To == Host {
		target = "1"
	}
	cmd := fmt.Sprintf("ip link set %s netns %s name %s", "$DEV", target, quote.Shell(s.Name))
	if s.Up {
		cmd += " up"
	}
	return in(s.To.Other(), cmd)
}

func (s CreateChild) String() string {
	cmd := fmt.Sprintf(
		"ip link add link %s name %s netns $POD group %d up type ipoib pkey %s",
		quote.Shell(s.Master.Name),
		quote.Shell(s.Name),
		s.Group,
		s.PKey,
	)
	if s.Mode != nil {
		cmd += " mode " + modeName(*s.Mode)
	}
	if s.Umcast != nil {
		cmd += fmt.Sprintf(" umcast %d", *s.Umcast)
	}
	return cmd
}

func (s DeleteChild) String() string { return in(s.In, "ip link delete "+quote.Shell(s.Netdev.Name)) }

// The pod has chosen the name. One that a shell might take for more than a word is not printed.
func (s DeleteUpper) String() string {
	name := s.Netdev.Name
	if !isWord(name) {
		name = fmt.Sprintf("$UPPER # with ifindex %d", s.Netdev.Index)
	}
	return in(s.In, "ip link delete "+name)
}

func isWord(s string) bool {
	return s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-@", r)
	})
}

func (s SetLink) String() string {
	var w []string
	add := func(format string, a ...any) { w = append(w, fmt.Sprintf(format, a...)) }
	if s.Name != "" {
		add("name %s", quote.Shell(s.Name))
	}
	if s.Alias != nil {
		add("alias %s", quote.Shell(*s.Alias))
	}
	if s.HWAddr != nil {
		add("address %s", s.HWAddr)
	}
	if s.MTU != 0 {
		add("mtu %d", s.MTU)
	}
	if s.TxQueue != nil {
		add("txqueuelen %d", *s.TxQueue)
	}
	if s.Group != nil {
		add("group %d", *s.Group)
	}
	for _, f := range []struct {
		bit     uint32
		on, off string
	}{
		{device.FlagUp, "up", "down"}, {device.FlagPromisc, "promisc on", "promisc off"},
		{device.FlagAllMulti, "allmulticast on", "allmulticast off"}, {device.FlagNoARP, "arp off", "arp on"},
		{device.FlagMulticast, "multicast on", "multicast off"}, {device.FlagDynamic, "dynamic on", "dynamic off"},
		{device.FlagNoTrailers, "trailers off", "trailers on"}, {device.FlagDebug, "debug on", "debug off"},
		{device.FlagPortSel, "portsel on", "portsel off"}, {device.FlagAutoMedia, "automedia on", "automedia off"},
	} {
		switch {
		case s.Mask&f.bit == 0:
		case s.Flags&f.bit != 0:
			add("%s", f.on)
		default:
			add("%s", f.off)
		}
	}
	if s.AddrGen != nil {
		add("addrgenmode %d", *s.AddrGen)
	}
	if s.Mode != nil || s.Umcast != nil {
		add("type ipoib")
	}
	if s.Mode != nil {
		add("mode %s", modeName(*s.Mode))
	}
	if s.Umcast != nil {
		add("umcast %d", *s.Umcast)
	}
	var lines []string
	if len(w) > 0 {
		lines = append(lines, in(s.In, "ip link set $DEV "+strings.Join(w, " ")))
	}
	for _, k := range slices.Sorted(maps.Keys(s.IPv4Conf)) {
		lines = append(
			lines,
			in(s.In, fmt.Sprintf("sysctl -w net.ipv4.conf.$DEV.%s=%d", ipv4ConfName(k), s.IPv4Conf[k])),
		)
	}
	for _, k := range slices.Sorted(maps.Keys(s.IPv6Conf)) {
		set := fmt.Sprintf("sysctl -w net.ipv6.conf.$DEV.%s=%d", quote.Shell(k), s.IPv6Conf[k])
		lines = append(lines, in(s.In, set))
	}
	if s.Token.IsValid() {
		lines = append(lines, in(s.In, "ip token set "+quote.Shell(s.Token.String())+" dev $DEV"))
	}
	return strings.Join(lines, "\n")
}

func (s Aside) String() string {
	var lines []string
	if len(s.Del) > 0 {
		lines = append(lines, AltNames{In: s.In, Del: s.Del}.String())
	}
	if s.Name != "" {
		lines = append(lines, in(s.In, "ip link set dev $DEV name "+quote.Shell(s.Name)))
	}
	return strings.Join(lines, "\n")
}

func (s AltNames) String() string {
	var lines []string
	for _, n := range s.Del {
		lines = append(lines, in(s.In, "ip link property del dev $DEV altname "+quote.Shell(n)))
	}
	for _, n := range s.Add {
		lines = append(lines, in(s.In, "ip link property add dev $DEV altname "+quote.Shell(n)))
	}
	return strings.Join(lines, "\n")
}

func (s Probe) String() string {
	var lines []string
	for _, a := range s.Addrs {
		if a.Is4() {
			lines = append(lines, in(Pod, "arping -D -c 3 -I $DEV "+quote.Shell(a.String())))
		} else {
			lines = append(lines, in(Pod, "ndisc6 -r 3 "+quote.Shell(a.String())+" $DEV"))
		}
	}
	return strings.Join(lines, "\n")
}

func (s AddAddr) String() string { return in(s.In, "ip addr add "+s.Addr.Prefix.String()+" dev $DEV") }
func (s DelAddr) String() string { return in(s.In, "ip addr del "+s.Addr.Prefix.String()+" dev $DEV") }
func (s AddRoute) String() string {
	return in(s.In, "ip route add "+words(s.Route.String())+" dev $DEV")
}
func (s DelRoute) String() string {
	return in(s.In, "ip route del "+words(s.Route.String())+" dev $DEV")
}
func (s AddRule) String() string { return in(Pod, "ip rule add "+s.Rule.String()) }
func (s DelRule) String() string { return in(Pod, "ip rule del "+s.Rule.String()) }

func (s Announce) String() string {
	var lines []string
	for _, a := range s.Addrs {
		if ip := a.Prefix.Addr(); ip.Is4() {
			lines = append(lines, in(Pod, "arping -c 1 -A -I $DEV "+ip.String()))
		} else {
			lines = append(lines, in(Pod, "ndsend "+ip.String()+" $DEV"))
		}
	}
	return strings.Join(lines, "\n")
}

func modeName(m uint16) string {
	if m == device.ModeConnected {
		return "connected"
	}
	return "datagram"
}

func (s SetVF) String() string {
	pf := quote.Shell(s.VF.PFName)
	if s.VF.PFName == "" {
		pf = "$PF"
	}
	return fmt.Sprintf("ip link set %s vf %d %s", pf, s.VF.Index, s.To.Text(s.Attr))
}

func (s Rebind) String() string {
	dir, name := "/sys/bus/"+s.Device.Bus+"/drivers/"+s.Driver, quote.Shell(s.Device.Name)
	reset := ""
	if s.Reset {
		reset = "echo 1 > " + quote.Shell("/sys/bus/"+s.Device.Bus+"/devices/"+s.Device.Name+"/reset") + "; "
	}
	return fmt.Sprintf("echo %s > %s; %secho %s > %s",
		name, quote.Shell(dir+"/unbind"), reset, name, quote.Shell(dir+"/bind"))
}
