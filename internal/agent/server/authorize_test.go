package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// apiServer knows three tokens, and counts what it is asked.
type apiServer struct{ asked atomic.Int64 }

func (s *apiServer) review(_ context.Context, token string) (known, allowed bool, err error) {
	s.asked.Add(1)
	switch token {
	case "reader":
		return true, true, nil
	case "tenant":
		return true, false, nil
	case "broken":
		return false, false, errors.New("connection refused")
	case "contradiction":
		return false, true, nil
	}
	return false, false, nil
}

// asks answers one request with these Authorization headers.
func asks(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	for _, v := range headers {
		r.Header.Add("Authorization", v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAuthorized(t *testing.T) {
	s := &apiServer{}
	h := Authorized(s.review, discard, ok)
	for range 2 { // the second time from memory
		for _, c := range []struct {
			headers []string
			want    int
		}{
			{nil, http.StatusUnauthorized},
			{[]string{""}, http.StatusUnauthorized},
			{[]string{"reader"}, http.StatusUnauthorized},
			{[]string{"Basic reader"}, http.StatusUnauthorized},
			{[]string{"Bearer "}, http.StatusUnauthorized},
			{[]string{"Bearer reader", "Bearer tenant"}, http.StatusUnauthorized},
			{[]string{"Bearer nobody"}, http.StatusUnauthorized},
			{[]string{"Bearer contradiction"}, http.StatusUnauthorized},
			{[]string{"Bearer tenant"}, http.StatusForbidden},
			{[]string{"Bearer broken"}, http.StatusInternalServerError},
			{[]string{"Bearer reader"}, http.StatusOK},
			{[]string{"bearer reader"}, http.StatusOK},
		} {
			w := asks(h, c.headers...)
			if w.Code != c.want || (w.Body.String() == "ok\n") != (c.want == http.StatusOK) {
				t.Errorf("%q: %d %s", c.headers, w.Code, w.Body)
			}
			if w.Code == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%q: %v", c.headers, w.Header())
			}
		}
	}
	// an unknown user, contradiction, tenant and reader once; what failed was asked again
	if n := s.asked.Load(); n != 6 {
		t.Errorf("asked %d times", n)
	}
}

// An answer is used for a minute, and not when the API server can't be asked any more.
func TestAnswersEnd(t *testing.T) {
	s := &apiServer{}
	failing := false
	a := newAuthorizer(func(ctx context.Context, token string) (bool, bool, error) {
		if failing {
			return true, true, errors.New("no API server")
		}
		return s.review(ctx, token)
	}, discard)
	now := time.Now()
	a.now = func() time.Time { return now }
	h := a.wrap(ok)
	for _, c := range []struct {
		later   time.Duration
		failing bool
		want    int
		asked   int64
	}{
		{0, false, http.StatusOK, 1},
		{answerValid - time.Second, true, http.StatusOK, 1},
		{time.Second, true, http.StatusInternalServerError, 1},
		{0, false, http.StatusOK, 2},
	} {
		now, failing = now.Add(c.later), c.failing
		if w := asks(h, "Bearer reader"); w.Code != c.want || s.asked.Load() != c.asked {
			t.Errorf("%+v: %d, asked %d times", c, w.Code, s.asked.Load())
		}
	}
}

// Made-up tokens fill nothing but their own part of the memory.
func TestAnswersAreBounded(t *testing.T) {
	s := &apiServer{}
	a := newAuthorizer(s.review, discard)
	h := a.wrap(ok)
	asks(h, "Bearer reader")
	for i := range 10 * answersKept {
		asks(h, fmt.Sprint("Bearer ", i))
	}
	if len(a.bad) > answersKept || len(a.good) != 1 {
		t.Errorf("%d bad, %d good", len(a.bad), len(a.good))
	}
	asked := s.asked.Load()
	if w := asks(h, "Bearer reader"); w.Code != http.StatusOK || s.asked.Load() != asked {
		t.Errorf("the good token was forgotten: %d", w.Code)
	}
}

// While the API server hangs over made-up tokens, others are told to come again, and a known token is served.
func TestReviewsAtOnce(t *testing.T) {
	s := &apiServer{}
	in, out := make(chan struct{}), make(chan struct{})
	a := newAuthorizer(func(ctx context.Context, token string) (bool, bool, error) {
		if token == "slow" {
			in <- struct{}{}
			<-out
		}
		return s.review(ctx, token)
	}, discard)
	h := a.wrap(ok)
	asks(h, "Bearer reader")
	done := make(chan int)
	for range reviewsAtOnce {
		go func() { done <- asks(h, "Bearer slow").Code }()
		<-in
	}
	if w := asks(h, "Bearer tenant"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d", w.Code)
	}
	if w := asks(h, "Bearer reader"); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
	close(out)
	for range reviewsAtOnce {
		if code := <-done; code != http.StatusUnauthorized {
			t.Errorf("%d", code)
		}
	}
	if w := asks(h, "Bearer tenant"); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
}
