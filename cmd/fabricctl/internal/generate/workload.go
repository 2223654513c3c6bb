package generate

import (
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networksAnnotation is where Multus reads a pod's networks.
const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// workload is the object of a kind that runs pods, behind the claim template that they name.
func (d *data) objects() (docs []doc) {
	notes := d.podNotes()
	if d.Claim != nil {
		docs = append(docs, d.claimTemplate())
	}
	add := func(o object, more map[string]string) {
		maps.Copy(notes, more)
		docs = append(docs, doc{object: o, head: d.podHead(), notes: notes})
	}
	meta := d.named(d.Name)
	idle := corev1.Container{Name: "main", Command: []string{"sleep", "infinity"}}
	switch d.kind {
	case "claim":
		if d.Pod {
			p := d.pod(idle)
			add(object{TypeMeta: kind("v1", "Pod"), Metadata: d.annotated(meta), Spec: p.Spec}, nil)
		}
	case "pod":
		p := d.pod(idle)
		add(object{TypeMeta: kind("v1", "Pod"), Metadata: d.annotated(meta), Spec: p.Spec}, nil)
	case "deployment":
		labels := map[string]string{"app": d.Name}
		p := d.pod(idle)
		p.Labels = labels
		add(object{kind("apps/v1", "Deployment"), meta, appsv1.DeploymentSpec{
			Replicas: new(int32(d.Workers)),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: p,
		}, nil}, map[string]string{
			"strategy": "A new pod can't have the devices before the old one has given them back.",
		})
	case "pytorchjob":
		add(object{kind("kubeflow.org/v1", "PyTorchJob"), meta, d.pytorch(), nil}, map[string]string{
			"pytorch": "The operator looks for this name.",
		})
	case "mpijob":
		o, more := d.mpi()
		add(object{kind("kubeflow.org/v2beta1", "MPIJob"), meta, o, nil}, more)
	case "volcano":
		p := d.pod(idle)
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		add(object{kind("batch.volcano.sh/v1alpha1", "Job"), meta, fields{
			"schedulerName": "volcano", "minAvailable": d.Workers,
			"plugins": fields{"svc": []string{}, "env": []string{}},
			"tasks":   []fields{{"name": "worker", "replicas": d.Workers, "template": p}},
		}, nil}, map[string]string{"minAvailable": "All or none: half a job would hold rails and wait."})
	case "perftest-pods":
		docs = append(docs, d.perftest()...)
	}
	return docs
}

// pod is the template of a pod with the workload's devices; c is what its container is beside them.
func (d *data) pod(c corev1.Container) corev1.PodTemplateSpec {
	c.Image = d.Image
	if d.takesEnv() {
		c.Env, _ = d.nccl()
	}
	c.Resources = d.resources()
	c.VolumeMounts = []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm"}}
	c.SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK"}},
	}
	// doctor wants 1 GiB at the least, and the workers of data loaders take more. It is a limit, and reserves nothing.
	size := quantity.MustParse("16Gi")
	if d.kind == "perftest-pods" {
		size = quantity.MustParse("1Gi")
	}
	p := corev1.PodTemplateSpec{ObjectMeta: d.annotated(metav1.ObjectMeta{}), Spec: corev1.PodSpec{
		Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &size,
		}}}},
	}}
	if d.Claim != nil {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "rails", ResourceClaimTemplateName: &d.Name}}
	}
	return p
}

// annotated names the networks of a pod.
func (d *data) annotated(m metav1.ObjectMeta) metav1.ObjectMeta {
	if a := d.Annotation(); a != "" {
		m.Annotations = map[string]string{networksAnnotation: a}
	}
	return m
}

// resources are those of a pod, as many as it has networks of each.
func (d *data) resources() (r corev1.ResourceRequirements) {
	list := corev1.ResourceList{}
	set := func(name string, n int) {
		list[corev1.ResourceName(name)] = *quantity.NewQuantity(int64(n), quantity.DecimalSI)
	}
	if d.Claim != nil {
		r.Claims = []corev1.ResourceClaim{{Name: "rails"}}
	} else {
		for _, n := range d.Workload {
			set(d.Prefix+"/"+n.Resource, d.Count(n))
		}
	}
	if d.GPUs > 0 && !d.gpusInClaim {
		set(d.GPU, d.GPUs)
	}
	if len(list) > 0 {
		r.Limits, r.Requests = list, list
	}
	return r
}

// podNotes are the comments of a pod.
func (d *data) podNotes() map[string]string {
	notes := map[string]string{
		"IPC_LOCK": `Verbs pin memory; without it "Couldn't allocate MR", or a crash.`,
		"shm": "64 MiB otherwise: too little for NCCL. What is used of it counts as memory of " +
			"the container.",
		networksAnnotation: strings.Join(d.networksNote(), "\n"),
		"resourceClaims":   "Kubernetes makes a claim for each pod.",
	}
	if d.takesEnv() {
		maps.Copy(notes, d.ncclNotes())
	}
	if d.GPUNote != "" {
		notes[d.GPU] = d.GPUNote
	}
	if len(d.Workload) > 0 && d.Claim == nil {
		notes["limits"] = "Of each resource as many as networks of it."
		if d.Shared {
			notes["limits"] = "One is all devices of the resource."
		}
	}
	return notes
}

func (d *data) networksNote() (lines []string) {
	n := d.RailCount()
	interfaces := fmt.Sprintf("%d interfaces, net1 to net%d.", n, n)
	own := 0
	for i := range d.Workload {
		own += len(d.Workload[i].devices())
	}
	if own < n {
		interfaces = fmt.Sprintf("%d interfaces, net1 to net%d, and net1p2 and so on of further ports.", n, own)
	}
	switch {
	case d.SharedRoCE():
		lines = append(lines, "A macvlan network per rail: "+interfaces+" RoCE needs an address in the pod for "+
			"its GID;",
			"generate nad --shared writes the networks.")
	case d.SharedFabric():
		lines = append(lines, "An IPoIB interface on the node's shared rail, for IP and rdma_cm. NCCL's verbs work "+
			"without it too.")
	case d.Claim != nil:
		lines = append(lines, "One network per rail: "+interfaces+" Without this line the container does not start.")
	default:
		lines = append(lines, "One network per rail: "+interfaces+" Without this line there are verbs devices and no "+
			"interface.")
	}
	if d.Note != "" {
		lines = append(lines, d.Note+".")
	}
	switch {
	case d.Shared || d.VFs || d.Planes() || n < 2:
	case d.Claim != nil:
		lines = append(lines, "The devices of the claim, in the order of rails; they reach each other.")
	default:
		lines = append(lines, "Which rail becomes net1 is the device plugin's choice; they reach each other.")
	}
	return lines
}

// podHead are the lines above an object with pods.
func (d *data) podHead() (lines []string) {
	if d.Annotation() != "" {
		return nil
	}
	if d.Note != "" {
		lines = append(lines, d.Note+".")
	}
	return append(lines, "No network: InfiniBand verbs need no interface, and the shared device plugin gives the "+
		"devices.")
}

// perftest are the pods that fabricctl verify measures.
func (d *data) perftest() (docs []doc) {
	var names []string
	for _, side := range Sides(d.Workers) {
		p := d.pod(corev1.Container{Name: "perftest", Command: []string{"sleep", "infinity"}})
		meta := d.annotated(d.named(d.Name + "-" + side))
		meta.Labels = map[string]string{"app": d.Name}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		if !d.SameNode {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					LabelSelector: &metav1.LabelSelector{MatchLabels: meta.Labels},
					TopologyKey:   corev1.LabelHostname,
				}},
			}}
		}
		notes := d.podNotes()
		notes["podAntiAffinity"] = "On one node the switch would be left out."
		docs = append(docs, doc{object{TypeMeta: kind("v1", "Pod"), Metadata: meta, Spec: p.Spec}, d.podHead(), notes})
		names = append(names, meta.Name)
	}
	where := "Each pod on a node of its own"
	if d.SameNode {
		where = "Pods that may be on one node"
	}
	docs[0].head = append([]string{
		where + ", for fabricctl verify " + strings.Join(names, " ") + ", or by hand:",
		fmt.Sprintf("  kubectl -n %s exec %s-a -- ib_write_bw --report_gbits", d.Namespace, d.Name),
		fmt.Sprintf("  kubectl -n %s exec %s-b -- ib_write_bw --report_gbits ADDRESS-OF-A", d.Namespace, d.Name),
		"The image needs perftest, ibverbs-providers, rdma-core, iproute2 and iputils-ping.",
	}, docs[0].head...)
	return docs
}

// claimTemplate is the ResourceClaimTemplate of the workload.
func (d *data) claimTemplate() doc {
	var c resourceapi.DeviceClaim
	notes := map[string]string{}
	for _, r := range d.Claim.Requests {
		exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: r.Class}
		if r.Count > 1 {
			exactly.Count = int64(r.Count)
		}
		for _, s := range r.Selectors {
			exactly.Selectors = append(exactly.Selectors,
				resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
		}
		c.Requests = append(c.Requests, resourceapi.DeviceRequest{Name: r.Name, Exactly: exactly})
		notes[r.Name] = r.Reason
	}
	for _, names := range d.Claim.Together {
		c.Constraints = append(c.Constraints, resourceapi.DeviceConstraint{
			Requests: names, MatchAttribute: new(resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")),
		})
	}
	return doc{object: object{
		TypeMeta: kind("resource.k8s.io/v1", "ResourceClaimTemplate"), Metadata: d.named(d.Name),
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: c}},
	}, notes: notes}
}
