package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// Bounds of what the API server answers.
const (
	MaxObject  = 16 << 20            // bytes of one object; etcd stores 1.5 MiB at most
	maxObjects = manifest.MaxObjects // of one kind
	page       = 500                 // objects at a time
)

var errTooLarge = fmt.Errorf("an object has more than %d MiB", MaxObject>>20)

// List is which objects of a resource are wanted.
type List struct {
	Of             Resource
	Namespace      string // empty: all
	Labels, Fields string // selectors
	Most           int    // so many at the most; 0: all
}

// Get reads one object.
func (c *Cluster) Get(ctx context.Context, of Resource, namespace, name string, into any) error {
	return c.read(ctx, target{"get", of, namespace, name, ""}, nil, decode(into))
}

func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(io.LimitReader(r, MaxObject)).Decode(into) }
}

// discover reads what the API server says of itself.
func (c *Cluster) discover(ctx context.Context, path string, into any) error {
	known, _ := c.served.Load(path)
	if b, ok := known.([]byte); ok {
		return json.Unmarshal(b, into)
	}
	client, err := c.open()
	if err != nil {
		return err
	}
	body, err := client.Get().AbsPath(path).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, MaxObject))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err == nil {
		c.served.Store(path, b)
	}
	return err
}

// Version is that of the API server: v1.34.2.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := c.discover(ctx, "/version", &v); err != nil {
		return "", c.fault(target{"get", Resource{Resource: "/version"}, "", "", ""}, err)
	}
	return v.GitVersion, nil
}

// Versions are those of an API group that the API server serves.
func (c *Cluster) Versions(ctx context.Context, group string) (out []string, err error) {
	var served metav1.APIGroup
	if err := c.discover(ctx, "/apis/"+group, &served); err != nil {
		return nil, c.fault(target{"get", Resource{Resource: "/apis/" + group}, "", "", ""}, err)
	}
	for _, v := range served.Versions {
		out = append(out, v.Version)
	}
	return out, nil
}

// Resources are those of one version of an API group.
func (c *Cluster) Resources(ctx context.Context, group, version string) ([]metav1.APIResource, error) {
	path := "/api/" + version
	if group != "" {
		path = "/apis/" + group + "/" + version
	}
	var served metav1.APIResourceList
	if err := c.discover(ctx, path, &served); err != nil {
		return nil, c.fault(target{"get", Resource{Resource: path}, "", "", ""}, err)
	}
	return served.APIResources, nil
}

// Each hands over the objects of a list one after the other: that of a large cluster is never held as a whole. bad is
// why an object can't be read, as far as it was. Objects of Kubernetes itself have no kind here.
func Each[T any](ctx context.Context, c *Cluster, l List, each func(o *T, bad error)) error {
	t := target{"list", l.Of, l.Namespace, "", ""}
	if _, err := c.at(ctx, &t); err != nil {
		return c.fault(t, err)
	}
	left, token, size := maxObjects, "", page
	if l.Most > 0 {
		size = min(size, l.Most)
	}
	for {
		ask := func(r *rest.Request) {
			r.Param("limit", strconv.Itoa(size))
			for name, value := range map[string]string{
				"continue": token, "labelSelector": l.Labels, "fieldSelector": l.Fields,
			} {
				if value != "" {
					r.Param(name, value)
				}
			}
		}
		err := c.read(ctx, t, ask, func(r io.Reader) (err error) {
			token, err = items(r, &left, each)
			return err
		})
		if more := expired(err); more != "" { // the rest as it is now
			token = more
			continue
		}
		if err != nil || token == "" || l.Most > 0 && maxObjects-left >= l.Most {
			return err
		}
	}
}

// expired is with which token a list goes on that took too long; empty: it is something else.
func expired(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// EachItem hands over the objects of a list that is in a file.
func EachItem[T any](r io.Reader, each func(o *T, bad error)) error {
	left := maxObjects
	_, err := items(r, &left, each)
	return err
}

// items reads a list, or a page of it; token is for the next one.
func items[T any](r io.Reader, left *int, each func(o *T, bad error)) (token string, err error) {
	bounded := &io.LimitedReader{R: r, N: MaxObject}
	d := json.NewDecoder(bounded)
	next := func(v any) error {
		err := d.Decode(v)
		if errors.Is(err, io.ErrUnexpectedEOF) && bounded.N == 0 {
			err = errTooLarge
		}
		bounded.N = MaxObject
		return err
	}
	if err := delimiter(d, '{'); err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		if key != "items" {
			var rest json.RawMessage
			if err := next(&rest); err != nil {
				return "", err
			}
			var meta metav1.ListMeta
			if key == "metadata" && json.Unmarshal(rest, &meta) == nil {
				token = meta.Continue
			}
			continue
		}
		if err := delimiter(d, '['); err != nil {
			return "", err
		}
		for ; d.More(); *left-- {
			if *left == 0 {
				return "", fmt.Errorf("there are more than %d objects", maxObjects)
			}
			o := new(T)
			err := next(o)
			if manifest.BrokenJSON(err) || errors.Is(err, errTooLarge) {
				return "", err
			}
			each(o, err)
		}
		if err := delimiter(d, ']'); err != nil {
			return "", err
		}
	}
	return token, delimiter(d, '}')
}

func delimiter(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("not a list of objects: %v where %v is wanted", got, want)
	}
	return err
}

// Table is a list as the API server shows it to people, with all columns.
func (c *Cluster) Table(ctx context.Context, l List) (*metav1.Table, error) {
	var t metav1.Table
	err := c.read(ctx, target{"list", l.Of, l.Namespace, "", ""}, func(r *rest.Request) {
		r.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		r.Param("fieldSelector", l.Fields).Param("limit", strconv.Itoa(maxObjects))
	}, decode(&t))
	for i := range t.Rows { // of which a printer takes the namespace
		row := &t.Rows[i].Object
		o := &metav1.PartialObjectMetadata{}
		if row.Raw != nil && json.Unmarshal(row.Raw, o) == nil {
			row.Object = o
		}
	}
	return &t, err
}

// Log has the log of a container read: its first bytes, of its last lines if tail is not 0.
func (c *Cluster) Log(ctx context.Context, namespace, pod, container string, bytes int64, tail int,
	take func(io.Reader) error,
) error {
	return c.read(ctx, target{"get", Pods, namespace, pod, "log"}, func(r *rest.Request) {
		r.Param("limitBytes", strconv.FormatInt(bytes, 10))
		if container != "" {
			r.Param("container", container)
		}
		if tail > 0 {
			r.Param("tailLines", strconv.Itoa(tail))
		}
	}, take)
}
