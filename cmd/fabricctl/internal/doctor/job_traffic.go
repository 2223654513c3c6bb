package doctor

import "fmt"

// Traffic below which a rail is silent: a subnet manager and ARP make a little.
const (
	silentGb   = 0.01 // Gb/s
	silentPart = 50   // or so many times less than the other rails of the worker
)

// jobTraffic finds rails that are silent while others are not.
func jobTraffic(list []Worker) (out []Finding) {
	counted, busy := 0, 0
	var seconds float64
	for i := range list {
		w := &list[i]
		if w.Seen == nil || w.Seen.Seconds <= 0 {
			continue
		}
		total, rails := 0.0, 0
		for _, p := range w.Seen.Ports {
			if p.Given && p.Counted {
				total += w.gbps(p.Send) + w.gbps(p.Receive)
				rails++
			}
		}
		if rails == 0 {
			continue
		}
		counted++
		seconds = w.Seen.Seconds
		if total/float64(rails) >= silentGb {
			busy++
		}
		out = append(out, w.silent(total, rails)...)
	}
	switch {
	case counted == 0:
		return nil
	case busy == 0:
		return one(finding("job-traffic", Warn, fmt.Sprintf("no rail of %d %s had traffic within %.1f s", counted,
			plural(counted, "worker"), seconds)))
	case busy < counted:
		for i := range list {
			w := &list[i]
			if n := w.idle(); n > 0 {
				out = append(out, finding("job-traffic", Warn, fmt.Sprintf("%s: none of its %d rails had traffic, "+
					"those of %d others had", w.at(), n, busy)))
			}
		}
	}
	return pass(out, "job-traffic", fmt.Sprintf("each rail of %d %s", counted, plural(counted, "worker")))
}

// idle is the number of rails of a worker of which none had traffic; 0: some had, or it is not known.
func (w *Worker) idle() (n int) {
	if w.Seen == nil || w.Seen.Seconds <= 0 {
		return 0
	}
	for _, p := range w.Seen.Ports {
		if !p.Given || !p.Counted {
			continue
		}
		if w.gbps(p.Send)+w.gbps(p.Receive) >= silentGb {
			return 0
		}
		n++
	}
	return n
}

// silent finds the silent rails of a worker whose others have traffic.
func (w *Worker) silent(total float64, rails int) (out []Finding) {
	for _, p := range w.Seen.Ports {
		own := w.gbps(p.Send) + w.gbps(p.Receive)
		others := (total - own) / float64(max(1, rails-1))
		if !p.Given || !p.Counted || rails < 2 || others < silentGb || own*silentPart > others {
			continue
		}
		text := fmt.Sprintf("%s: %s had %.2f Gb/s in both directions together, the other rails %.2f on average", w.at(),
			p.Name, own, others)
		if p.State != "ACTIVE" {
			text += ", and it is " + p.State
		}
		out = append(out, finding("job-traffic", Warn, text))
	}
	return out
}

// jobMemory finds workers near their limit, or that were killed for it.
func jobMemory(list []Worker) (out []Finding) {
	n := 0
	for i := range list {
		w := &list[i]
		if w.Seen == nil || w.Seen.Cgroup == 0 {
			continue
		}
		n++
		s := w.Seen
		limit := "no limit"
		if s.Limit >= 0 {
			limit = fmt.Sprintf("limit %d MiB", s.Limit>>20)
		}
		text := fmt.Sprintf("%d MiB used, %s (cgroup v%d), %d of them in /dev/shm, %d MiB pinned for RDMA", s.Used>>20,
			limit, s.Cgroup, s.Shm>>20, s.Pinned>>20)
		const nearly = 10                      // a tenth is left
		fixed := s.Shm + min(s.Pinned, s.Used) // what can't be reclaimed, unlike the cache of files in s.Used
		switch {
		case s.OOMKills > 0:
			out = append(out, finding("job-memory", Fail, fmt.Sprintf("%s: the kernel has killed processes of the "+
				"container for want of memory: %d; %s", w.at(), s.OOMKills, text)))
		case s.Limit > 0 && s.Limit-fixed < s.Limit/nearly:
			out = append(out, finding("job-memory", Warn, w.at()+": "+text))
		}
	}
	if n == 0 {
		return nil
	}
	return pass(out, "job-memory", fmt.Sprintf("%d %s", n, plural(n, "worker")))
}
