{{/* Names and labels. What may look like a number is written by toYaml, which quotes it then. */}}

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

{{/* Of what belongs to no namespace: two releases of one name must not meet. */}}
{{- define "podgpu.clustername" -}}
{{- /* No namespace has a dot, so that no two pairs come to one name. */ -}}
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

{{/* Whether roles are made: dcgm-exporter's chart has a switch of its own. */}}
{{- define "podgpu.rbac" -}}
{{- if and .Values.rbac.create .Values.kubernetes.rbac.create -}}yes{{- end -}}
{{- end -}}

{{/* What a selector chooses by; `component` is node or extender. Takes the root and the component. */}}
{{- define "podgpu.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "podgpu.name" $root | toYaml }}
app.kubernetes.io/instance: {{ $root.Release.Name | toYaml }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "podgpu.labels" -}}
{{- $root := index . 0 -}}
{{ include "podgpu.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels and namespace of an object's metadata. */}}
{{- define "podgpu.meta" -}}
namespace: {{ include "podgpu.namespace" (index . 0) | toYaml }}
labels:
  {{- include "podgpu.labels" . | nindent 2 }}
{{- end -}}

{{/* Whether an object of `auto`, true or false is made; takes root, value, and the kind that the cluster has to know. */}}
{{- define "podgpu.wanted" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 | toString -}}
{{- if or (eq $value "true") (and (eq $value "auto") ($root.Capabilities.APIVersions.Has (index . 2))) -}}yes{{- end -}}
{{- end -}}
