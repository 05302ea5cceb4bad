{{/* Names and labels. Values that may look like numbers are written by toYaml, which quotes them. */}}

{{- define "podgpu.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "podgpu.fullname" -}}
{{- $name := include "podgpu.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "podgpu.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The name of cluster-scoped objects: two releases of the same name must not collide. */}}
{{- define "podgpu.clustername" -}}
{{- /* A namespace contains no dot, so that the name is unique. */ -}}
{{- printf "%s.%s" (include "podgpu.namespace" .) (include "podgpu.fullname" .) -}}
{{- end -}}

{{- define "podgpu.serviceaccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "podgpu.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "podgpu.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Whether to create roles; kubernetes.rbac.create is the switch of dcgm-exporter's chart. */}}
{{- define "podgpu.rbac" -}}
{{- if and .Values.rbac.create .Values.kubernetes.rbac.create -}}yes{{- end -}}
{{- end -}}

{{/* Labels of selectors. Arguments: the root and the component, node or extender. */}}
{{- define "podgpu.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "podgpu.name" $root | toYaml }}
app.kubernetes.io/instance: {{ $root.Release.Name | toYaml }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object that the chart sets. Arguments: the root and the component. */}}
{{- define "podgpu.ownlabels" -}}
{{- $root := index . 0 -}}
{{ include "podgpu.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* All labels of an object. Arguments: the root, the component, and optionally labels of this object alone. */}}
{{- define "podgpu.labels" -}}
{{ include "podgpu.ownlabels" . }}
{{- with include "podgpu.commonlabels" (list (index . 0) (slice . 2)) }}
{{ . }}
{{- end }}
{{- end -}}

{{/* commonLabels, and labels of one object that take precedence, as YAML; empty if there are none. Arguments: the root, and a
     list of at most one mapping. */}}
{{- define "podgpu.commonlabels" -}}
{{- $own := first (index . 1) | default dict -}}
{{- with merge (deepCopy $own) (index . 0).Values.commonLabels -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Labels of a pod. Arguments: the root, the component, and optionally labels of this pod alone. */}}
{{- define "podgpu.podlabels" -}}
{{ include "podgpu.selector" . }}
{{- with include "podgpu.commonlabels" (list (index . 0) (slice . 2)) }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Labels and namespace of an object's metadata. Arguments: those of podgpu.labels. */}}
{{- define "podgpu.meta" -}}
namespace: {{ include "podgpu.namespace" (index . 0) | toYaml }}
labels:
  {{- include "podgpu.labels" . | nindent 2 }}
{{- end -}}

{{/* Whether to create an object. Arguments: root, `auto`, true or false, and the kind that the cluster needs for auto. */}}
{{- define "podgpu.wanted" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 | toString -}}
{{- if or (eq $value "true") (and (eq $value "auto") ($root.Capabilities.APIVersions.Has (index . 2))) -}}yes{{- end -}}
{{- end -}}
