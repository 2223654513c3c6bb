package generate

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// pytorch is the spec of a PyTorchJob.
func (d *data) pytorch() fields {
	replicas := fields{}
	for role, n := range map[string]int{"Master": 1, "Worker": d.Workers - 1} {
		replicas[role] = fields{
			"replicas": n, "restartPolicy": "OnFailure",
			"template": d.pod(corev1.Container{Name: "pytorch", Command: []string{"torchrun", "train.py"}}),
		}
	}
	return fields{"nprocPerNode": fmt.Sprint(d.slots()), "pytorchReplicaSpecs": replicas}
}

// mpi is the spec of an MPIJob that runs nccl-tests, with its comments.
func (d *data) mpi() (fields, map[string]string) {
	args := []string{
		"--allow-run-as-root", "-mca", "coll_hcoll_enable", "0", "-mca", "pml", "ob1", "-mca", "btl", "tcp,self",
		"-mca", "btl_tcp_if_include", "eth0", "-mca", "oob_tcp_if_include", "eth0", "-x", "NCCL_DEBUG=INFO",
	}
	vars, reasons := d.nccl()
	notes := map[string]string{}
	for _, v := range vars {
		if v.Name != "NCCL_IB_HCA" { // nccl-env names the HCAs in each worker
			args = append(args, "-x", v.Name+"="+v.Value)
			notes[v.Name+"="+v.Value] = reasons[v.Name]
		}
	}
	without := "An image without fabricctl works too: in exclusive RDMA mode the pod sees its own rails only, and " +
		"NCCL needs none of it."
	if d.Shared || d.SharedFabric() {
		without = "In shared RDMA mode the pod sees every HCA of its node: the image needs fabricctl."
	}
	maps.Copy(notes, map[string]string{
		"Launcher":            "It needs no rail: it only starts the others.",
		"--allow-run-as-root": "Most images run mpirun as root, which it refuses otherwise.",
		"coll_hcoll_enable": "Open MPI's HCOLL opens RDMA devices by itself and hangs in containers. NCCL's own " +
			"traffic is\nuntouched by this and by pml and btl.",
		"pml": "Open MPI's own messages go over the cluster's network; the rails are NCCL's. Without ob1 it " +
			"takes UCX where it has\nit, and UCX takes the rails. For MPI over the rails set UCX_NET_DEVICES in " +
			`each worker, by eval "$(fabricctl nccl-env)":` +
			"\n-x UCX_NET_DEVICES hands the devices of one pod to the others, where UCX finds none of that name.",
		"NCCL_DEBUG=INFO": "Look for NET/IB; NET/Socket is TCP.",
		"worker": "The ranks come by ssh: they see no variable of this container, only those that mpirun hands " +
			"on (-x), the same for all.\nWhat differs by pod, the ports and the GID index, NCCL reads from " +
			"/etc/nccl.conf or, if that can't be written, ~/.nccl.conf.\n" + without + "\nAn image whose sshd is " +
			"started in another way, for a user other than root, needs its own last line.",
	})
	launcher := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "launcher", Image: d.Image, Command: []string{"mpirun"},
		Args: append(args, "all_reduce_perf", "-b", "8M", "-e", "8G", "-f", "2"),
	}}}}
	worker := d.pod(corev1.Container{Name: "worker", Command: []string{"sh", "-c"}, Args: []string{workerScript}})
	return fields{
		"slotsPerWorker": d.slots(), "runPolicy": fields{"cleanPodPolicy": "Running"},
		"mpiReplicaSpecs": fields{
			"Launcher": fields{"replicas": 1, "template": launcher},
			"Worker":   fields{"replicas": d.Workers, "template": worker},
		},
	}, notes
}

// workerScript writes what NCCL needs to know of the pod, and waits for mpirun.
const workerScript = `if command -v fabricctl >/dev/null; then
  fabricctl nccl-env -o nccl.conf >/tmp/nccl.conf || echo "fabricctl nccl-env: no usable port" >&2
  cp /tmp/nccl.conf /etc/nccl.conf || cp /tmp/nccl.conf ~/.nccl.conf
fi
exec /usr/sbin/sshd -De
`
