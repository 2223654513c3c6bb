package controller

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eachPage lists objects, at most so many at once, and calls f each time page has the next ones.
func eachPage(
	ctx context.Context, r client.Reader, page client.ObjectList, limit int64, f func(), opts ...client.ListOption,
) error {
	for {
		next := append(slices.Clip(opts), client.Limit(limit), client.Continue(page.GetContinue()))
		if err := r.List(ctx, page, next...); err != nil {
			return err
		}
		f()
		if page.GetContinue() == "" {
			return nil
		}
	}
}
