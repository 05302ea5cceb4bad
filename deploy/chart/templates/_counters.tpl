{{/* The counters list under the name that dcgm-exporter's chart gives it: exporter-metrics-config-map, whatever the release. */}}

{{/* Whether a volume of the values asks for it. It gets a map of this release, so that two don't claim one. */}}
{{- define "podgpu.countersvolume" -}}
{{- range .Values.extraConfigMapVolumes -}}
{{- if eq (dig "configMap" "name" "" .) "exporter-metrics-config-map" -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether dcgm-exporter's -m asks for it in the pods' namespace, and no other release has made it there. */}}
{{- define "podgpu.countersasked" -}}
{{- $asked := printf "%s:exporter-metrics-config-map" (include "podgpu.namespace" .) -}}
{{- if and (include "podgpu.dcgm" .) (has $asked (include "podgpu.needs" . | fromJson).maps) -}}
{{- $there := lookup "v1" "ConfigMap" (include "podgpu.namespace" .) "exporter-metrics-config-map" -}}
{{- $by := dig "metadata" "annotations" (dict) ($there | default dict) -}}
{{- if or (not $there) (and (eq (get $by "meta.helm.sh/release-name") .Release.Name) (eq (get $by "meta.helm.sh/release-namespace") .Release.Namespace)) -}}yes{{- end -}}
{{- end -}}
{{- end -}}
