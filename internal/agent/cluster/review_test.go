package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// What the API server is asked, and what each of its answers means: only yes to both questions is permission.
func TestMayReadMetrics(t *testing.T) {
	user := authenticationv1.UserInfo{Username: "u", UID: "1", Groups: []string{"g"},
		Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}}}
	for name, c := range map[string]struct {
		who                   authenticationv1.TokenReviewStatus
		may                   authorizationv1.SubjectAccessReviewStatus
		tokenError, mayError  bool
		known, allowed, fails bool
	}{
		"reader": {
			who: authenticationv1.TokenReviewStatus{Authenticated: true, User: user},
			may: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, known: true, allowed: true,
		},
		"tenant": {who: authenticationv1.TokenReviewStatus{Authenticated: true, User: user}, known: true},
		"denied": {
			who: authenticationv1.TokenReviewStatus{Authenticated: true, User: user}, known: true,
			may: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true},
		},
		"nobody": {
			who: authenticationv1.TokenReviewStatus{Error: "invalid bearer token", User: user},
			may: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
		},
		"no token review": {tokenError: true, fails: true,
			may: authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
		"no access review": {
			who: authenticationv1.TokenReviewStatus{Authenticated: true, User: user}, mayError: true, fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews",
				func(w http.ResponseWriter, r *http.Request) {
					var review authenticationv1.TokenReview
					decode(t, r, &review)
					if review.Spec.Token != "secret" {
						t.Errorf("%+v", review.Spec)
					}
					review.Status = c.who
					encode(t, w, &review, c.tokenError)
				})
			mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
				func(w http.ResponseWriter, r *http.Request) {
					var review authorizationv1.SubjectAccessReview
					decode(t, r, &review)
					s := review.Spec
					metrics := authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
					if s.User != "u" || s.UID != "1" || len(s.Groups) != 1 || len(s.Extra["scope"]) != 1 ||
						s.ResourceAttributes != nil || s.NonResourceAttributes == nil ||
						*s.NonResourceAttributes != metrics {
						t.Errorf("%+v", s)
					}
					review.Status = c.may
					encode(t, w, &review, c.mayError)
				})
			server := httptest.NewServer(mux)
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.ContentType = "application/json"
			client, err := New(config, "gpu-1")
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			known, allowed, err := client.MayReadMetrics(t.Context(), "secret")
			if known != c.known || allowed != c.allowed || (err != nil) != c.fails {
				t.Errorf("known %t, allowed %t, %v", known, allowed, err)
			}
		})
	}
}

func decode(t *testing.T, r *http.Request, into any) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		t.Error(err)
	}
}

func encode(t *testing.T, w http.ResponseWriter, v any, fail bool) {
	t.Helper()
	if fail {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}
