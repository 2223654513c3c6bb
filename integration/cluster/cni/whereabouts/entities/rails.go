// Package entities is laid over by that of whereabouts' e2e.
package entities

import (
	"strings"

	nettypes "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// rails asks for a device for each network of a pod with these annotations.
func rails(annotations map[string]string) corev1.ResourceRequirements {
	n := len(strings.Split(annotations[nettypes.NetworkAttachmentAnnot], ","))
	list := corev1.ResourceList{"fabric.dev/rails": *resource.NewQuantity(int64(n), resource.DecimalSI)}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}
