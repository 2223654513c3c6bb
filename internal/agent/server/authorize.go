package server

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// answerValid is how long an answer of the API server is used again: for as long a revoked token goes on working,
	// and a permission just granted has no effect yet.
	answerValid = time.Minute
	// answersKept bounds the tokens that are known to be good, and those that are known not to be.
	answersKept = 128
	// reviewsAtOnce and reviewTime bound what callers can make the agent ask the API server.
	reviewsAtOnce = 4
	reviewTime    = 5 * time.Second
)

// Review asks the API server whose token this is, if anybody's, and whether they may read metrics.
type Review func(ctx context.Context, token string) (known, allowed bool, err error)

// answer is what the API server said of a token.
type answer struct {
	known, allowed bool
	until          time.Time
}

// authorizer remembers answers. Good and bad ones are kept apart: a sender of made-up tokens can't make it forget the
// good ones.
type authorizer struct {
	review Review
	log    *slog.Logger
	now    func() time.Time
	slots  chan struct{}

	mu        sync.Mutex
	good, bad map[[sha256.Size]byte]answer // by the token's hash: the tokens themselves are nowhere
}

// Authorized passes requests whose bearer token may read metrics.
func Authorized(review Review, log *slog.Logger, h http.Handler) http.Handler {
	return newAuthorizer(review, log).wrap(h)
}

func newAuthorizer(review Review, log *slog.Logger) *authorizer {
	return &authorizer{review: review, log: log, now: time.Now, slots: make(chan struct{}, reviewsAtOnce),
		good: map[[sha256.Size]byte]answer{}, bad: map[[sha256.Size]byte]answer{}}
}

func (a *authorizer) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := bearer(r)
		if token == "" {
			unauthorized(w)
			return
		}
		key := sha256.Sum256([]byte(token))
		is, found := a.remembered(key)
		if !found {
			select {
			case a.slots <- struct{}{}:
			default:
				busy(w)
				return
			}
			var err error
			is, err = a.ask(r.Context(), key, token)
			<-a.slots
			if err != nil {
				a.log.Warn("cannot ask the API server who wants metrics", "error", err)
				http.Error(w, "cannot ask the API server", http.StatusInternalServerError)
				return
			}
		}
		switch {
		case !is.known:
			unauthorized(w)
		case !is.allowed:
			http.Error(w, "no permission to get /metrics", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// ask asks the API server. A failure is no answer, and not remembered.
func (a *authorizer) ask(ctx context.Context, key [sha256.Size]byte, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	known, allowed, err := a.review(ctx, token)
	if err != nil {
		return answer{}, err
	}
	is := answer{known, known && allowed, a.now().Add(answerValid)}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.good, key)
	delete(a.bad, key)
	if is.allowed {
		a.keep(a.good, key, is)
	} else {
		a.keep(a.bad, key, is)
	}
	return is, nil
}

func (a *authorizer) remembered(key [sha256.Size]byte) (answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range []map[[sha256.Size]byte]answer{a.good, a.bad} {
		if is, ok := in[key]; ok && a.now().Before(is.until) {
			return is, true
		}
	}
	return answer{}, false
}

// keep makes room first: for what is too old, else for all.
func (a *authorizer) keep(in map[[sha256.Size]byte]answer, key [sha256.Size]byte, is answer) {
	if len(in) >= answersKept {
		for k, old := range in {
			if !a.now().Before(old.until) {
				delete(in, k)
			}
		}
	}
	if len(in) >= answersKept {
		clear(in)
	}
	in[key] = is
}

// bearer returns the token of a request; empty: it has none, or several.
func bearer(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "a token that the API server knows is needed", http.StatusUnauthorized)
}
