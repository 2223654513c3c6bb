package generate

// VerifyJob is a Job or a CronJob that runs fabricctl verify.
type VerifyJob struct {
	Namespace string
	Name      string
	Image     string   // with fabricctl and kubectl
	Schedule  string   // of a CronJob; empty: a Job
	Args      []string // of fabricctl
	Labels    bool     // it labels nodes
	NCCL      bool     // it runs an MPIJob
}

// Verify writes the Job, with an account that has the rights which it needs, and no others.
func Verify(v VerifyJob) (string, error) {
	d := &data{Verify: v}
	return d.render("verify.yaml")
}
