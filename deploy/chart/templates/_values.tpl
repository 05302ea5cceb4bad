{{/* Completes the values for the other templates. */}}

{{/* Included first by every template, because helm removes keys that are empty in a values file. An empty mapping or
     value gets its default; an empty list stays empty. */}}
{{- define "podgpu.values" -}}
{{- include "podgpu.foreign" . -}}
{{- include "podgpu.filled" (list .Values (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- if .Values.usage.enabled -}}
{{- $_ := set .Values "hostPID" true -}}
{{- end -}}
{{- $keys := list "enabled" "create" "name" "key" "mountPath" "data" -}}
{{- if .Values.config.enabled -}}
{{- /* dcgm-exporter's YAML file, which is not podgpu's own configuration. */ -}}
{{- $file := dict "create" true "name" "" "key" "config.yaml" "mountPath" "/etc/dcgm-exporter/config.yaml" "data" "version: 1\nmetrics:\n  file: /etc/dcgm-exporter/default-counters.csv\n" -}}
{{- range $keys -}}
{{- if hasKey $.Values.config . -}}{{- $_ := set $file . (get $.Values.config .) -}}{{- end -}}
{{- end -}}
{{- if and (not $file.create) (not $file.name) -}}
{{- fail "config.name: set the name of the ConfigMap with dcgm-exporter's YAML file, or create: true and data" -}}
{{- end -}}
{{- $_ := set .Values "dcgmConfigFile" $file -}}
{{- end -}}
{{- range $keys -}}
{{- $_ := unset $.Values.config . -}}
{{- end -}}
{{- end -}}

{{/* Name the fix for values files of other charts. */}}
{{- define "podgpu.foreign" -}}
{{- if kindIs "map" .Values.dcgmExporter -}}
{{- fail "dcgmExporter: this is a section of the GPU operator's values. With the operator, set its repository, image and version to podgpu's image, and do not install this chart. For this chart, write serviceMonitor, resources and so on at the top level, and dcgmExporter: true" -}}
{{- end -}}
{{- range list "dcgm-exporter" "gpu-operator" -}}
{{- if hasKey $.Values . -}}
{{- fail (printf "%s: these are values for a subchart of that name; write them at the top level, or below the name of podgpu's chart if podgpu is the subchart" .) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (.Values.serviceMonitor | default dict) "labels" -}}
{{- fail "serviceMonitor.labels: set serviceMonitor.additionalLabels, the labels of the object" -}}
{{- end -}}
{{- end -}}

{{/* Set values that are missing or null to defaults. Arguments: the values and the defaults. */}}
{{- define "podgpu.filled" -}}
{{- $values := index . 0 -}}
{{- $none := dict "resources" dict "labels" dict "tolerations" list "priorityClassName" "" "visibleDevices" "" -}}
{{- range $key, $default := index . 1 -}}
{{- if kindIs "invalid" $default -}}
{{- /* Calculated where it is needed. */ -}}
{{- else if or (not (hasKey $values $key)) (kindIs "invalid" (get $values $key)) -}}
{{- $_ := set $values $key (ternary (get $none $key) (deepCopy $default) (hasKey $none $key)) -}}
{{- else if and (kindIs "map" $default) (not (hasKey $none $key)) -}}
{{- include "podgpu.filled" (list (get $values $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The value of an option of dcgm-exporter and the place where it is set, as JSON, or nothing.
     Arguments: the root, the option's names, and its environment variable. */}}
{{- define "podgpu.option" -}}
{{- $root := index . 0 -}}
{{- $names := index . 1 -}}
{{- $variable := index . 2 -}}
{{- $found := dict -}}
{{- range $root.Values.extraEnv -}}
{{- if eq .name $variable -}}
{{- $found = dict "value" (.value | default (ternary "valueFrom" "" (hasKey . "valueFrom"))) "place" (printf "extraEnv: %s" $variable) -}}
{{- end -}}
{{- end -}}
{{- $waiting := "" -}}
{{- range $root.Values.arguments -}}
{{- $word := toString . -}}
{{- $option := regexReplaceAll "=.*$" (regexReplaceAll "^--?" $word "") "" -}}
{{- if $waiting -}}
{{- $found = dict "value" $word "place" (printf "arguments: %s" $waiting) -}}
{{- $waiting = "" -}}
{{- else if and (hasPrefix "-" $word) (has $option $names) -}}
{{- if contains "=" $word -}}
{{- $found = dict "value" (regexReplaceAll "^[^=]*=" $word "") "place" (printf "arguments: %s" (regexReplaceAll "=.*$" $word "")) -}}
{{- else -}}
{{- $waiting = $word -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
