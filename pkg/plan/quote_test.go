package plan

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// The names in a plan are those that a pod, or a recording, has given: as commands they are words, for a user who
// pastes them. Each string of each step that TestKinds knows is hostile here.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{
		"x\ntouch pwned\n", "$(touch pwned)", "`touch pwned`", "';touch pwned;'", "\";touch pwned;\"", "a;touch pwned",
		"a&touch pwned&", "a|touch pwned", "a>pwned", "#", "",
	} {
		// The commands themselves are functions that do nothing.
		script := "ip() { :; }\nrdma() { :; }\nsysctl() { :; }\narping() { :; }\nndsend() { :; }\n"
		for _, steps := range plans() {
			for _, s := range steps {
				v := reflect.New(reflect.TypeOf(s)).Elem()
				v.Set(reflect.ValueOf(s))
				fill(v, name)
				hostile, ok := v.Interface().(Step)
				if !ok {
					t.Fatalf("%T is no step", v.Interface())
				}
				script += hostile.String() + "\n"
			}
		}
		dir := t.TempDir()
		sh := exec.CommandContext(t.Context(), "/bin/sh")
		sh.Dir, sh.Env = dir, []string{"PATH=/bin:/usr/bin", "POD=none", "DEV=none", "TMP=none", "PF=none"}
		sh.Stdin = strings.NewReader(script + ":\n")
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s\n%s", name, err, out, script)
		}
		if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
			t.Errorf("%q: the shell has made %v (%v):\n%s", name, made, err, script)
		}
	}
}

// fill sets every string of a value, those behind pointers and in lists and maps too, without changing the original.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.Type().Name() == "string" { // a named type is a word of the program's own, as VFAttr
			v.SetString(text)
		}
	case reflect.Pointer:
		if !v.IsNil() && v.CanSet() {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(v.Elem())
			fill(p.Elem(), text)
			v.Set(p)
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(f, text)
		}
	case reflect.Slice:
		if v.CanSet() {
			list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(list, v)
			for i := range list.Len() {
				fill(list.Index(i), text)
			}
			v.Set(list)
		}
	case reflect.Map:
		if v.CanSet() && v.Type().Key().Kind() == reflect.String && v.Len() > 0 {
			m := reflect.MakeMap(v.Type())
			for _, e := range v.Seq2() {
				m.SetMapIndex(reflect.ValueOf(text).Convert(v.Type().Key()), e)
			}
			v.Set(m)
		}
	}
}
