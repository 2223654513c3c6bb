package doctor

// jobChecks are those of doctor job, and of manifests.
var jobChecks = []Check{
	{
		"pod-requests",
		"Requests of devices equal their limits",
		"devices can't be given twice: the API server refuses a pod whose request of such a resource is not its limit",
		"the same whole number in limits and requests, or only in limits",
	},
	{
		"job-template",
		"The pods of the job are known",
		"a TrainJob says little of its pods: its TrainingRuntime or ClusterTrainingRuntime does",
		"fabricctl doctor job -f JOB -f RUNTIME, or with --cluster; kubectl get clustertrainingruntimes",
	},
	{
		"job-devices",
		"The job asks for what it computes with",
		"without an RDMA device NCCL talks to other pods over TCP, without an error",
		"fabricctl generate pytorchjob, mpijob, volcano or deployment writes what a worker needs",
	},
	{
		"job-launcher",
		"The launcher takes no device",
		"the launcher of an MPIJob only starts mpirun: what it asks for is missing for a worker, and it waits for a " +
			"node with GPUs",
		"no GPUs, no networks and no resources of RDMA devices for the launcher; runLauncherAsWorker: true if it " +
			"computes",
	},
	{
		"job-workers",
		"The workers have the same rails",
		"NCCL pairs the rails of two workers one by one: the one with fewer limits all, and one with none takes TCP",
		"the same annotation and the same count of the resource in each role that computes",
	},
	{
		"job-rails",
		"A worker has, and uses, the rails that go with its GPUs",
		"fewer networks than rails for these GPUs, or NCCL left some out: NCCL_IB_HCA, a port that is not Active, no " +
			"address on RoCE, another rate than that of the others",
		"one network per rail in the annotation; eval \"$(fabricctl nccl-env)\" in the container; fabricctl doctor " +
			"pod in it says what a rail lacks",
	},
	{
		"job-fit",
		"The nodes have room for the job",
		"more pods than nodes with free devices, a count that no node has, or a nodeSelector that fits too few. " +
			"Affinity and taints are not looked at",
		"fewer workers, or wait; kubectl describe node NAME has Allocatable and what is taken; fabricctl list on a " +
			"node says by whom",
	},
	{
		"job-access",
		"The pods of the job can be asked",
		"the role may not read logs or exec, the container has ended, or its image has no shell",
		"a role that may get pods/log and create pods/exec; an ephemeral container: kubectl debug POD --image IMAGE " +
			"--target CONTAINER",
	},
	{
		"job-running",
		"The pods of the job run",
		"a pod waits, or has ended, and the others wait for it",
		"fabricctl doctor pod NAMESPACE/NAME says which step is missing; kubectl describe pod",
	},
	{
		"job-net",
		"NCCL uses RDMA in each worker",
		"NCCL found no RDMA device that it can use, or was told not to: it goes over TCP without an error, and one " +
			"such worker slows down all",
		"fabricctl doctor pod in the container; NCCL_NET=IB makes an error of it",
	},
	{
		"job-differs",
		"The workers do the same",
		"a worker with other rails, another network or another version of NCCL than most: another node, image or " +
			"variable",
		"compare with a worker in order: fabricctl doctor pod in both, fabricctl doctor host on both nodes",
	},
	{
		"job-gdr",
		"NCCL uses GPUDirect RDMA",
		"data goes through the memory of the host: nvidia_peermem is not loaded and there is no dma-buf, or GPU and " +
			"HCA are too far from each other (NCCL_NET_GDR_LEVEL)",
		"fabricctl doctor host on the node: host-gpudirect, host-acs",
	},
	{
		"job-debug",
		"The log says which network NCCL uses",
		"NCCL logs it with NCCL_DEBUG=INFO only, when a communicator is made: the log has no such line, or it is " +
			"further up than what was read",
		"env: {name: NCCL_DEBUG, value: INFO} and {name: NCCL_DEBUG_SUBSYS, value: \"INIT,NET,GRAPH\"} in the " +
			"workers; mpirun -x NCCL_DEBUG=INFO; NCCL_DEBUG_FILE must not lead it elsewhere; --tail reads more",
	},
	{
		"job-messages",
		"No known message in the workers' logs",
		"the message in the evidence says it",
		"that of the message",
	},
	{
		"job-traffic",
		"Each rail of a worker has traffic",
		"the job does not use the rail: NCCL_IB_HCA, a port that is not Active, an order of rails in which it pairs " +
			"with none; or the job computes, loads or waits just now",
		"look again with a longer --interval; NCCL's log (NCCL_DEBUG=INFO) lists the rails it uses",
	},
	{
		"job-memory",
		"The workers are below their memory limit",
		"pinned pages, and what is in /dev/shm, count towards the limit and can't be reclaimed",
		"raise resources.limits.memory; sizeLimit for the emptyDir at /dev/shm",
	},
}
