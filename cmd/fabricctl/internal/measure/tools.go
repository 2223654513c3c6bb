package measure

import (
	"context"
	"slices"
	"strings"
)

// tools is what an end has to measure with.
type tools struct {
	known   bool // it has a shell that could say so
	has     []string
	gpus    []gpu // in PCI order
	cuda    bool  // perftest can use the memory of GPUs
	dmabuf  bool
	peermem bool // the kernel's module that lets HCAs reach the memory of GPUs without dma-buf
}

type gpu struct{ address, slot string }

// toolScript says what there is to measure with. GPUs are those that the container was given: their directory in /proc
// has no others. Without any, what perftest can do with GPUs does not matter.
const toolScript = `echo tools
for t in ping rping ib_write_bw ib_write_lat; do command -v $t >/dev/null 2>&1 && echo "has $t"; done
if [ -d /proc/driver/nvidia/gpus ]; then
	case $(timeout 10 ib_write_bw --help 2>&1) in
	*--use_cuda_dmabuf*) echo cuda; echo dmabuf ;;
	*--use_cuda*) echo cuda ;;
	esac
fi
[ ! -d /sys/module/nvidia_peermem ] || echo peermem
for g in /proc/driver/nvidia/gpus/*; do
	[ -d "$g" ] && echo "gpu ${g##*/} $(cd "/sys/bus/pci/devices/${g##*/}" 2>/dev/null && pwd -P)"
done
:`

const maxGPUs = 64

func toolsOf(ctx context.Context, e *End) tools {
	text, err := e.Run(ctx, "sh", "-c", toolScript)
	if err != nil {
		return tools{}
	}
	return parseTools(text)
}

func parseTools(text string) (t tools) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "tools":
			t.known = true
		case "has":
			t.has = append(t.has, f[1:]...)
		case "cuda":
			t.cuda = true
		case "dmabuf":
			t.dmabuf = true
		case "peermem":
			t.peermem = true
		case "gpu":
			if len(f) > 1 && len(t.gpus) < maxGPUs {
				t.gpus = append(t.gpus, gpu{f[1], strings.Join(f[2:], " ")})
			}
		}
	}
	return t
}

func (t *tools) can(program string) bool { return slices.Contains(t.has, program) }

// nearest is the number of the GPU that shares most of its way from the CPU with an HCA, as CUDA counts in PCI order.
func (t *tools) nearest(slot string) int {
	best, most := 0, -1
	for i, g := range t.gpus {
		if n := common(g.slot, slot); n > most {
			best, most = i, n
		}
	}
	return best
}

// common counts the directories that two paths have in common.
func common(a, b string) (n int) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	return n
}

// noGPU is why two ends cannot measure between GPUs; empty: they can.
func noGPU(a, b *tools) string {
	for _, t := range []*tools{a, b} {
		switch {
		case !t.known:
			return "the pods have no shell that says what they have"
		case len(t.gpus) == 0:
			return "the pods have no GPU"
		case !t.cuda:
			return "their perftest is built without CUDA"
		case !t.dmabuf && !t.peermem:
			return "neither nvidia_peermem is loaded nor can perftest use dma-buf"
		}
	}
	return ""
}

// gpuFlags are the options of perftest for the memory of the GPU next to a rail.
func (t *tools) gpuFlags(r *rail) []string {
	flags := []string{"--use_cuda=" + itoa(t.nearest(r.port.slot))}
	if !t.peermem { // with it dma-buf is not needed
		flags = append(flags, "--use_cuda_dmabuf")
	}
	return flags
}
