package doctor

import "regexp"

// ucxMessages are those of UCX, and of Open MPI about it.
var ucxMessages = []Message{
	{
		ID:    "log-ucx-device",
		Title: "UCX is told to use a device that the pod does not have",
		Pattern: regexp.MustCompile(
			`UCX +WARN +network devices? '.*(is|are) not available|` +
				`UCX +ERROR +no usable transports/devices \(asked .* on network`,
		),
		Examples: []string{
			"[1795335759.339802] [b:270  :0]     ucp_context.c:1014 UCX  WARN  network device 'mlx5_0:1' is not " +
				"available, please use one or more of: 'lo'(tcp), 'mlx5_1:1'(ib), 'net1'(tcp)",
		},
		Cause: "UCX_NET_DEVICES names a device of another pod, or of the host: mpirun -x UCX_NET_DEVICES hands the " +
			"value of one pod to all ranks, and in exclusive RDMA mode no two pods have the same devices. UCX goes " +
			"over what is left, such as shared memory or TCP, or does not start",
		Cure: "no -x UCX_NET_DEVICES: set it in each pod, before the rank starts: eval \"$(fabricctl nccl-env)\". " +
			"The message lists the devices that the pod has",
	},
	{
		ID:    "log-ucx-transport",
		Title: "UCX is told to use a transport that is not there",
		Pattern: regexp.MustCompile(
			`UCX +WARN +transports? '.*(is|are) not available|` +
				`UCX +ERROR +no usable transports/devices \(asked .* on all`,
		),
		Examples: []string{
			"[1795335862.233944] [train-0:417  :0]     ucp_context.c:1014 UCX  WARN  transport 'dc' is not " +
				"available, please use one or more of: cma, ib, mm, posix, rc, rc_v, rc_verbs, self, shm, sm, sysv, " +
				"tcp, ud, ud_v, ud_verbs",
		},
		Cause: "UCX_TLS names a transport that this HCA, or this build of UCX, does not have: dc and those with " +
			"_mlx5 need a Mellanox HCA and UCX with its mlx5 provider. Without any of rc, ud and ib in the list that " +
			"the message prints, UCX has found no RDMA device at all",
		Cure: "UCX_TLS=rc,sm,self, or none; ucx_info -d in the pod; fabricctl doctor pod",
	},
	{
		ID:    "log-ucx-unreachable",
		Title: "UCX has no transport to the peer",
		Pattern: regexp.MustCompile(
			`UCX +ERROR +no (active messages|remote \S+( \S+)?|auxiliary|wireup|p2p \S+) transport|` +
				`Failed to resolve UCX endpoint`,
		),
		Examples: []string{
			"UCX  ERROR   no active messages transport to <no debug data>: Unsupported operation",
			"Error: Failed to resolve UCX endpoint",
		},
		Cause: "the two ends have no transport in common: one of them has no RDMA device, or they are on different " +
			"fabrics, or UCX_TLS leaves out what they have",
		Cure: "fabricctl doctor pod in both pods; fabricctl verify A B",
	},
	{
		ID:    "log-ucx-tcp",
		Title: "UCX goes over TCP",
		Pattern: said(
			`ep_cfg\[\d+\]: .*\btcp/`,
		),
		Except: regexp.MustCompile(`\b(rc|dc|ud)(_\w+)?/`),
		Examples: []string{
			"[1795335845.249751] [train-0:379  :0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(tcp/net1)",
		},
		Cause: "UCX found no usable RDMA device, or UCX_TLS or UCX_NET_DEVICES excludes it, and took the interface " +
			"of that name without an error",
		Cure: "fabricctl doctor pod in the container; UCX_TLS=rc,sm,self turns the fallback into an error",
	},
	{
		ID:    "log-pml-ucx",
		Title: "Open MPI can't use UCX",
		Pattern: regexp.MustCompile(
			`PML ucx cannot be selected|No components were able to be opened in the pml framework`,
		),
		Examples: []string{
			"[train-0:00270] PML ucx cannot be selected",
			"No components were able to be opened in the pml framework.",
		},
		Cause: "-mca pml ucx is asked for, and in this pod UCX has found no RDMA device: none is there, or " +
			"UCX_NET_DEVICES or UCX_TLS excludes it. TCP alone is not enough for this component",
		Cure: "what UCX prints before this line says which; fabricctl doctor pod in the pod that Host names; " +
			"-mca pml ob1 -mca btl tcp,self when only NCCL is to use RDMA",
	},
}

func init() { Messages = append(Messages, ucxMessages...) }
