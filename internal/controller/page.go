package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eachPage lists objects, at most so many at once, and calls f each time page has the next ones. The page is emptied
// before each request: what is decoded into a used list keeps the fields that its JSON lacks.
func eachPage(
	ctx context.Context, r client.Reader, page client.ObjectList, limit int64, f func(), opts ...client.ListOption,
) error {
	for {
		next := append(slices.Clip(opts), client.Limit(limit), client.Continue(page.GetContinue()))
		page.SetContinue("")
		if err := meta.SetList(page, nil); err != nil {
			return err
		}
		if err := r.List(ctx, page, next...); err != nil {
			return err
		}
		f()
		if page.GetContinue() == "" {
			return nil
		}
	}
}
