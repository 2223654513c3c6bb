package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fabric-cni/fabric-cni/internal/result"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Predict returns the addresses that Add would reserve now, and false where that is not known here: the plugin is
// executed, and decides by itself. Nothing is reserved.
func (d Delegate) Predict() (*result.Result, bool, error) {
	b, _ := d.builtin()
	if b == nil {
		return nil, false, nil
	}
	if _, _, err := d.choose("ADD"); err != nil {
		return nil, false, err
	}
	r, err := b.predict(d.Env, d.Conf)
	if err != nil {
		return nil, false, fmt.Errorf("IPAM plugin %q: %w", d.Type, err)
	}
	var text bytes.Buffer
	if err := r.PrintTo(&text); err != nil {
		return nil, false, fmt.Errorf("IPAM plugin %q: %w", d.Type, err)
	}
	out, err := result.Parse(text.Bytes(), r.CNIVersion)
	return out, err == nil, err
}

// builtin returns the built-in plugin that can serve the configuration, or nil. If there is one that can't, key is the
// key of the configuration that it does not know.
func (d Delegate) builtin() (b *builtin, key string) {
	if b = TypeOf(d.Type).builtin; b == nil {
		return nil, ""
	}
	var conf struct {
		IPAM any `json:"ipam"`
	}
	if json.Unmarshal(d.Conf, &conf) != nil {
		return b, "" // it reports the error
	}
	if key = unknownKey(conf.IPAM, reflect.TypeOf(b.section), "ipam"); key != "" {
		return nil, key
	}
	return b, ""
}

// run answers a command as the plugin's process would, except that it does not compare CNI_NETNS with the host's
// namespace: the CNI plugin that delegates has done so.
func (b *builtin) run(ctx context.Context, env netconf.Env, conf []byte) ([]byte, error) {
	return b.answer(env, conf, func() ([]byte, error) {
		switch env.Command {
		case "ADD":
			r, v, err := b.add(ctx, env, conf)
			if err != nil {
				return nil, err
			}
			return text(r, v)
		case "DEL":
			return nil, b.del(ctx, env, conf)
		case "CHECK":
			return nil, b.check(ctx, env, conf)
		}
		return nil, nil // GC, STATUS: neither plugin has them; the CNI library then answers with success
	})
}

// text is a result in JSON, in a version of the specification.
func text(r types.Result, v string) ([]byte, error) {
	r, err := r.GetAsVersion(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = r.PrintTo(&out)
	return out.Bytes(), err
}

// answer calls f if the call is valid. The error of the plugin itself is a *types.Error, with the code that the CNI
// library gives to a plain error.
func (*builtin) answer(env netconf.Env, conf []byte, f func() ([]byte, error)) (stdout []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // what would have ended the plugin's process must not end this one
			stdout, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	if env.Command == "VERSION" {
		var out bytes.Buffer
		err := version.All.Encode(&out)
		return out.Bytes(), err
	}
	if err := validate(env, conf); err != nil {
		return nil, err
	}
	stdout, err = f()
	var own *types.Error
	switch {
	case err == nil:
		return stdout, nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, fmt.Errorf("did not answer in time: %w", err)
	case errors.As(err, &own):
		return nil, own
	}
	return nil, types.NewError(types.ErrInternal, err.Error(), "")
}

// since returns the CNI version that brought a command, "" for those of the first one.
func since(command string) string {
	switch command {
	case "CHECK":
		return "0.4.0"
	case "GC", "STATUS":
		return "1.1.0"
	}
	return ""
}

// validate checks what skel, the CNI library's main function, checks before it calls a plugin, with the same answers.
func validate(env netconf.Env, text []byte) error {
	if err := validateEnv(env); err != nil {
		return err
	}
	var conf struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, fmt.Sprintf("error unmarshall network config: %v", err), "")
	}
	if conf.Name == "" {
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	}
	if err := utils.ValidateNetworkName(conf.Name); err != nil {
		return err
	}
	var decoder version.ConfigDecoder
	v, err := decoder.Decode(text)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if first := since(env.Command); first != "" {
		if ok, err := version.GreaterThanOrEqualTo(v, first); err != nil {
			return types.NewError(types.ErrDecodingFailure, err.Error(), "")
		} else if !ok {
			return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+env.Command, "")
		}
	}
	var reconciler version.Reconciler
	if err := reconciler.Check(v, version.All); err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	return nil
}

func validateEnv(env netconf.Env) error {
	if env.Command == "GC" || env.Command == "STATUS" {
		return nil
	}
	var missing []string
	if env.ContainerID == "" {
		missing = append(missing, "CNI_CONTAINERID")
	} else if err := utils.ValidateContainerID(env.ContainerID); err != nil {
		return err
	}
	if env.Netns == "" && env.Command != "DEL" {
		missing = append(missing, "CNI_NETNS")
	}
	if env.IfName == "" {
		missing = append(missing, "CNI_IFNAME")
	} else if err := utils.ValidateInterfaceName(env.IfName); err != nil {
		return err
	}
	if len(missing) > 0 {
		return types.NewError(types.ErrInvalidEnvironmentVariables,
			"required env variables ["+strings.Join(missing, ",")+"] missing", "")
	}
	return nil
}
