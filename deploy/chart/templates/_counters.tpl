{{/* The counters list with its name in dcgm-exporter's chart: exporter-metrics-config-map, for any release name. */}}

{{/* Whether a volume of the values uses it. The volume gets this release's ConfigMap, so that two releases do not share one. */}}
{{- define "podgpu.countersvolume" -}}
{{- range .Values.extraConfigMapVolumes -}}
{{- if eq (dig "configMap" "name" "" .) "exporter-metrics-config-map" -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether dcgm-exporter's -m refers to it in the pods' namespace, and no other release has created it there. */}}
{{- define "podgpu.countersasked" -}}
{{- $asked := printf "%s:exporter-metrics-config-map" (include "podgpu.namespace" .) -}}
{{- if and (include "podgpu.dcgm" .) (has $asked (include "podgpu.needs" . | fromJson).maps) -}}
{{- $there := lookup "v1" "ConfigMap" (include "podgpu.namespace" .) "exporter-metrics-config-map" -}}
{{- $by := dig "metadata" "annotations" (dict) ($there | default dict) -}}
{{- if or (not $there) (and (eq (get $by "meta.helm.sh/release-name") .Release.Name) (eq (get $by "meta.helm.sh/release-namespace") .Release.Namespace)) -}}yes{{- end -}}
{{- end -}}
{{- end -}}
