package netconf

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// guards are the text fields of a configuration and of the environment: for one that is a path, or becomes part of one,
// the file and the function that see to it that it leads nowhere else. Empty: it is no part of a path; it is compared
// with names, or passed on to the kernel by netlink.
var guards = map[string]string{
	"CNIVersion": "", "Name": "", // of the network: a directory of host-local, which has guards of its own
	"Type": "", "Mode": "", "RDMA": "",
	"Selector.Kind": "", "Selector.Field": "",
	"Selector.Value":        "pkg/netconf/select.go kernelPath", // kernelpath: below /sys/devices
	"Selector.Address.Bus":  "pkg/device/address.go ParseAddress",
	"Selector.Address.Name": "pkg/device/address.go ParseAddress",
	"Master":                "", "IPoIBMode": "", "RDMAName": "", "RoCEMode": "", "DeviceID": "", "Injected": "",
	"Pod.UID": "internal/prepared/prepared.go IsUID", "Pod.Namespace": "", "Pod.Name": "",
	"VF.LinkState": "", "VF.VLANProto": "", "VF.IBKubernetesState": "",
	"IPAM.Type":       "internal/ipam/find.go find",
	"DNS.Nameservers": "", "DNS.Domain": "", "DNS.Search": "", "DNS.Options": "",
	"DeviceInfo":                   "internal/devinfo/devinfo.go check",
	"LogLevel":                     "",
	"LogFile":                      "internal/policy/policy.go LogFile",
	"ValidAttachments.ContainerID": "", "ValidAttachments.IfName": "", // compared with the journal's
	"Ignored": "",
	// Set by the runtime, which is trusted as the owner of the node is.
	"Env.Command": "", "Env.ContainerID": "", "Env.Netns": "", "Env.IfName": "", "Env.Args": "", "Env.Path": "",
}

// texts calls f with each field that is or holds text.
func texts(t reflect.Type, path string, f func(string)) {
	switch t.Kind() {
	case reflect.String:
		f(path)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			texts(t.Elem(), path, f)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() {
				texts(field.Type, strings.TrimPrefix(path+"."+field.Name, "."), f)
			}
		}
	}
}

// Every text that a network, a pod or a claim can choose is known, and what guards it if it is a path. A new field is
// to be judged before it is listed.
func TestTextFields(t *testing.T) {
	left := map[string]bool{}
	for name := range guards {
		left[name] = true
	}
	seen := func(name string) {
		guard, ok := guards[name]
		if !ok {
			t.Errorf("field %s is not listed: is it a path, and what guards it?", name)
		}
		delete(left, name)
		if guard == "" {
			return
		}
		file, function, _ := strings.Cut(guard, " ")
		b, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil || !strings.Contains(string(b), function+"(") {
			t.Errorf("%s: its guard %s is not there: %v", name, guard, err)
		}
	}
	texts(reflect.TypeFor[Config](), "", seen)
	texts(reflect.TypeFor[Env](), "Env", seen)
	for name := range left {
		t.Errorf("there is no field %s any more", name)
	}
}
