package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

var getOptions metav1.GetOptions

// Apply applies the objects of YAML files, as kubectl apply --server-side with strict validation does.
func (s *Server) Apply(ctx context.Context, files ...string) error {
	for _, pattern := range files {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			return fmt.Errorf("no file %s: %w", pattern, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := s.ApplyText(ctx, b); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// ApplyText applies the objects of a YAML text. A kind that the API server does not know yet is waited for.
func (s *Server) ApplyText(ctx context.Context, text []byte) error {
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); err == io.EOF { //nolint:errorlint // that is what it returns
			return nil
		} else if err != nil {
			return err
		}
		if o.Object == nil {
			continue
		}
		if err := s.applyOne(ctx, o); err != nil {
			return err
		}
	}
}

// Create creates an object with strict validation, as kubectl apply does with a new one.
func (s *Server) Create(ctx context.Context, text []byte) error {
	o := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096).Decode(o); err != nil {
		return err
	}
	r, err := s.resource(o)
	if err != nil {
		return err
	}
	_, err = r.Create(ctx, o, metav1.CreateOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
	return err
}

func (s *Server) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	r, err := s.resource(o)
	if err != nil {
		return err
	}
	_, err = r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

// resource is where an object belongs.
func (s *Server) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	gvk := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	for range 50 {
		mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
		if mapping, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return client.Resource(mapping.Resource).Namespace(namespace), nil
}
