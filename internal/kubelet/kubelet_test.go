package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// checkpoint is a directory with a checkpoint of this text.
func checkpoint(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Checkpoint), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// recorded is as kubelet 1.34 wrote it: a pod with an init container and a container, and another pod.
const recorded = `{"Data":{"PodDeviceEntries":[` +
	`{"PodUID":"7d2c-1","ContainerName":"c","ResourceName":"fabric.dev/ib-200g","DeviceIDs":{"-1":["0000:5e:00.0"],` +
	`"1":["0000:86:00.0","0000:3b:00.0"]},"AllocResp":"Gi0KHi9kZXYvaW5maW5pYmFuZC91dmVyYnMw"},` +
	`{"PodUID":"7d2c-1","ContainerName":"init","ResourceName":"fabric.dev/ib-200g","DeviceIDs":{"1":["0000:86:00.0"]},` +
	`"AllocResp":""},` +
	`{"PodUID":"7d2c-1","ContainerName":"c","ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["GPU-1"]},"AllocResp":""},` +
	`{"PodUID":"7d2c-2","ContainerName":"c","ResourceName":"fabric.dev/ib-200g","DeviceIDs":{"0":["0000:d8:00.0"]},` +
	`"AllocResp":""}],"RegisteredDevices":{"fabric.dev/ib-200g":["0000:d8:00.0"]}},"Checksum":3466427534}`

func TestOf(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("kubelet's file has to be root's")
	}
	dir := checkpoint(t, recorded)
	for _, id := range []string{"0000:3b:00.0", "0000:86:00.0"} {
		g, err := Of(dir, "7d2c-1", id)
		if err != nil || g == nil {
			t.Fatal(g, err)
		}
		want := []string{"0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0"}
		if g.Resource != "fabric.dev/ib-200g" || !slices.Equal(g.IDs, want) {
			t.Errorf("%s: %+v", id, g)
		}
	}
	for _, c := range [][2]string{
		{"7d2c-1", "0000:d8:00.0"}, {"7d2c-2", "0000:3b:00.0"}, {"7d2c", "0000:3b:00.0"}, {"", ""}, {"7d2c-1", ""},
	} {
		if g, err := Of(dir, c[0], c[1]); g != nil || err != nil {
			t.Errorf("%q: %+v, %v", c, g, err)
		}
	}
	for _, empty := range []string{
		`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`,
		`{"Data":{"PodDeviceEntries":[]}}`,
		// What a device plugin or a pod's author can choose looks like an entry only to people.
		`{"Data":{"PodDeviceEntries":[{"PodUID":"p","ContainerName":"{\"PodUID\":\"7d2c-1\",\"ResourceName\":\"r\"` +
			`,\"DeviceIDs\":{\"0\":[\"0000:3b:00.0\"]}}"}]}}`,
		`{"Data":{"PodDeviceEntries":[{"PodUID":"7d2c-1","DeviceIDs":{"0":["0000:3b:00.0"]},"PodUID":"p"}]}}`,
	} {
		if g, err := Of(checkpoint(t, empty), "7d2c-1", "0000:3b:00.0"); g != nil || err != nil {
			t.Errorf("%s: %+v, %v", empty, g, err)
		}
	}
}

// Whatever is not as expected is an error: nothing is guessed.
func TestOfFails(t *testing.T) {
	one := `{"Data":{"PodDeviceEntries":[{"PodUID":"p","ResourceName":"r","DeviceIDs":`
	for name, text := range map[string]string{
		"empty": "", "no JSON": "x", "a list": "[]", "null": "null", "without data": `{"Checksum":1}`,
		"data null": `{"Data":null}`, "without entries": `{"Data":{}}`, "by hand": `{ "Data": {} }`,
		"before 1.20": one + `["a"]}]}}`,
		"a number":    one + `{"0":[7]}}]}}`,
		"cut off":     one + `{"0":["a"]}`,
		"broken":      one + `{"0":["a"]}}{"PodUID":"p",}`,
	} {
		if g, err := Of(checkpoint(t, text), "p", "a"); err == nil || g != nil {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	if g, err := Of(t.TempDir(), "p", "a"); !errors.Is(err, fs.ErrNotExist) || g != nil {
		t.Errorf("no file: %+v, %v", g, err)
	}
}

// The file says which devices a pod may have: it counts only if root alone can have written it.
func TestOfForeign(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"writable for all":   func(file string) error { return os.Chmod(file, 0o606) },
		"writable for group": func(file string) error { return os.Chmod(file, 0o660) },
		"somebody's":         func(file string) error { return os.Chown(file, 1000, 0) },
		"a link": func(file string) error {
			if err := os.Rename(file, file+".1"); err != nil {
				return err
			}
			return os.Symlink(file+".1", file)
		},
		"a pipe": func(file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return unix.Mkfifo(file, 0o600)
		},
		"a directory": func(file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.Mkdir(file, 0o700)
		},
		"too long": func(file string) error { return os.Truncate(file, maxFile+1) },
	} {
		if name == "somebody's" && os.Getuid() != 0 {
			continue // only root can give a file away
		}
		t.Run(name, func(t *testing.T) {
			dir := checkpoint(t, recorded)
			if err := spoil(filepath.Join(dir, Checkpoint)); err != nil {
				t.Fatal(err)
			}
			g, err := Of(dir, "7d2c-1", "0000:3b:00.0")
			if g != nil || err == nil || !strings.Contains(err.Error(), Checkpoint) {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
}

// large is the checkpoint of a node with many pods, each with rails and GPUs, and with what device plugins answered.
func large(t testing.TB, pods int) string {
	t.Helper()
	type full struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[int64][]string
		AllocResp                           []byte
	}
	var all []full
	for i := range pods {
		uid := fmt.Sprintf("0f5f2b9e-6c43-4f4e-9d0a-%012d", i)
		rails := map[int64][]string{0: {"0000:5e:00.0", "0000:3b:00.0"}, 1: {"0000:d8:00.0", "0000:86:00.0"}}
		all = append(all, full{uid, "c", "fabric.dev/ib-200g", rails, make([]byte, 800)},
			full{uid, "c", "nvidia.com/gpu", map[int64][]string{0: {"GPU-1", "GPU-2"}}, make([]byte, 1200)})
	}
	var file struct {
		Data struct{ PodDeviceEntries []full }
	}
	file.Data.PodDeviceEntries = all
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint(t, string(b))
}

func BenchmarkOf(b *testing.B) {
	for _, pods := range []int{10, 200} {
		b.Run(fmt.Sprintf("%d pods", pods), func(b *testing.B) {
			dir := large(b, pods)
			uid := fmt.Sprintf("0f5f2b9e-6c43-4f4e-9d0a-%012d", pods-1)
			for b.Loop() {
				if g, err := Of(dir, uid, "0000:86:00.0"); err != nil || len(g.IDs) != 4 {
					b.Fatal(g, err)
				}
			}
		})
	}
}

// Whatever the file has: an error, or ids of this pod.
func FuzzOf(f *testing.F) {
	f.Add(recorded, "7d2c-1", "0000:3b:00.0")
	f.Add(`{"Data":{"PodDeviceEntries":[{"PodUID":"p","DeviceIDs":{"":[""]}}]}}`, "p", "")
	f.Fuzz(func(t *testing.T, text, uid, id string) {
		if g, err := allocation([]byte(text), uid, id); g != nil && (err != nil || !slices.Contains(g.IDs, id)) {
			t.Errorf("%+v, %v", g, err)
		}
	})
}
