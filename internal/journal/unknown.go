package journal

import "encoding/json"

// extra is what a JSON object holds beside the fields that this version knows, at any depth but not inside lists: they
// are taken as a whole.
type extra struct {
	fields map[string]json.RawMessage
	within map[string]*extra // by known field
}

// beyond returns what the object all holds and the object own does not; nil for nothing. A known field that is empty,
// and therefore left out of own, comes along; it does no harm, as addTo prefers what is known.
func beyond(all, own json.RawMessage) (*extra, error) {
	var known map[string]json.RawMessage
	x := &extra{within: map[string]*extra{}}
	if err := json.Unmarshal(all, &x.fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(own, &known); err != nil {
		return nil, err
	}
	for k, v := range known {
		if isObject(v) && isObject(x.fields[k]) {
			in, err := beyond(x.fields[k], v)
			if err != nil {
				return nil, err
			}
			if in != nil {
				x.within[k] = in
			}
		}
		delete(x.fields, k)
	}
	if len(x.fields) == 0 && len(x.within) == 0 {
		return nil, nil
	}
	return x, nil
}

// addTo returns the object own with these fields. What was within a field that own does not have any more is gone with
// it.
func (x *extra) addTo(own json.RawMessage) (json.RawMessage, error) {
	var out map[string]json.RawMessage
	if err := json.Unmarshal(own, &out); err != nil {
		return nil, err
	}
	for k, in := range x.within {
		if !isObject(out[k]) {
			continue
		}
		v, err := in.addTo(out[k])
		if err != nil {
			return nil, err
		}
		out[k] = v
	}
	for k, v := range x.fields {
		if _, ok := out[k]; !ok {
			out[k] = v
		}
	}
	return json.Marshal(out)
}

func isObject(b json.RawMessage) bool { return len(b) > 0 && b[0] == '{' }
