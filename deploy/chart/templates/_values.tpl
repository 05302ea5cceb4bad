{{/* Completes the values for the other templates. */}}

{{/* Included first by every template, because helm removes keys that are empty in a values file. An empty mapping or
     value gets its default; an empty list stays empty. */}}
{{- define "podgpu.values" -}}
{{- include "podgpu.filled" (list .Values (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- if .Values.config.enabled -}}
{{- fail "config.enabled: this is a value of dcgm-exporter's chart; in this chart, config is podgpu's own configuration. For a file of dcgm-exporter, set arguments: [--config-file, PATH] and mount it with a volume" -}}
{{- end -}}
{{- range list "enabled" "create" "name" "key" "mountPath" "data" -}}
{{- /* Keys of dcgm-exporter's chart without effect while config.enabled is false. */ -}}
{{- $_ := unset $.Values.config . -}}
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
