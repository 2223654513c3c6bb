package agent

// tell makes an Event and a log line of everything that has not been told yet.
func (l *looker) tell(now map[string]string) {
	for key, text := range now {
		if l.said[key] == text {
			continue
		}
		reason, message := cut(text)
		l.log.Warn(message, "reason", reason)
		if l.cluster != nil {
			l.cluster.Warn(reason, message)
		}
	}
	for key, text := range l.said {
		if _, still := now[key]; !still {
			_, message := cut(text)
			l.log.Info("no longer so", "what", message)
		}
	}
	l.said = now
}

// ready returns why pods can't be served, nothing if they can.
func (l *looker) ready() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}
