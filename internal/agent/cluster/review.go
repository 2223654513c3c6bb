package cluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Reviewer asks the API server who may read metrics, at the rate that client-go allows each of its two clients (unless
// the configuration has another, 5 in a second): it holds up nothing else.
type Reviewer struct {
	authentication typedauthenticationv1.TokenReviewsGetter
	authorization  typedauthorizationv1.SubjectAccessReviewsGetter
}

// NewReviewer returns a Reviewer that asks the API server of this configuration.
func NewReviewer(config *rest.Config) (*Reviewer, error) {
	authentication, err := typedauthenticationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	authorization, err := typedauthorizationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return &Reviewer{authentication, authorization}, nil
}

// MayReadMetrics asks the API server whose token this is, and whether they may get /metrics. known is false if the
// token is not valid. An error is not an answer.
func (r *Reviewer) MayReadMetrics(ctx context.Context, token string) (known, allowed bool, err error) {
	who, err := r.authentication.TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return false, false, fmt.Errorf("review a token: %w", err)
	}
	if !who.Status.Authenticated {
		return false, false, nil // Status.Error says why: an expired one, a wrong signature
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	may, err := r.authorization.SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, false, fmt.Errorf("review the access of %q: %w", user.Username, err)
	}
	return true, may.Status.Allowed && !may.Status.Denied, nil
}
