{{/* The image; a digest goes before a tag. */}}
{{- define "fabric.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The service account of a part. Arguments: root, part. */}}
{{- define "fabric.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
  {{- with .hook }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Who a binding is for. Arguments: root, part. */}}
{{- define "fabric.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ .root.Release.Name }}-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* What the restricted pod security standard asks of a pod. */}}
{{- define "fabric.restrictedPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The same of a container. */}}
{{- define "fabric.restrictedContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Whether the API server serves MutatingAdmissionPolicy, and which version of it. */}}
{{- define "fabric.mutatingVersion" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
v1beta1
{{- end -}}
{{- end }}

{{/* How Prometheus gets the metrics of an agent or a controller. */}}
{{- define "fabric.scrape" -}}
scheme: {{ ternary "https" "http" .Values.metrics.secure }}
{{- if .Values.metrics.secure }}
tlsConfig: {insecureSkipVerify: true} # each signs its certificate itself; the token is what is checked
{{- with .Values.metrics.tokenSecret }}
authorization:
  credentials: {name: {{ . }}, key: token}
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations of a pod: its own, and those by which Prometheus finds its metrics. Arguments: root, port, annotations. */}}
{{- define "fabric.podAnnotations" -}}
{{- $scrape := dict }}
{{- if eq .root.Values.metrics.listen "pod" }}
{{- $scheme := ternary "https" "http" .root.Values.metrics.secure }}
{{- $scrape = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .port) "prometheus.io/scheme" $scheme }}
{{- end }}
{{- with merge (dict) (.annotations | default dict) $scrape }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where pods go: nodes, taints, and for how long they are worth a node's room. Arguments: values, affinity. */}}
{{- define "fabric.scheduling" -}}
priorityClassName: {{ .values.priorityClassName | quote }}
nodeSelector: {{ toYaml (.values.nodeSelector | default dict) | nindent 2 }}
tolerations: {{ toYaml (.values.tolerations | default list) | nindent 2 }}
{{- with .values.affinity | default .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
