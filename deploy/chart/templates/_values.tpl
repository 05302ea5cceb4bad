{{/* The values as the other templates read them. */}}

{{/* Stands first in every template: helm takes away what a file of values leaves empty, and nothing may depend on that.
     An empty heading has its defaults, an empty value its default, and an empty list of things is none of them. */}}
{{- define "podgpu.values" -}}
{{- include "podgpu.filled" (list .Values (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- if .Values.config.enabled -}}
{{- fail "config.enabled: this is of dcgm-exporter's chart, whose file podgpu takes by arguments: [--config-file, PATH] and a volume; here config is podgpu's own configuration" -}}
{{- end -}}
{{- range list "enabled" "create" "name" "key" "mountPath" "data" -}}
{{- /* Switched off, it says nothing. */ -}}
{{- $_ := unset $.Values.config . -}}
{{- end -}}
{{- end -}}

{{/* Give values that are missing or null those of a mapping of defaults. Takes both. */}}
{{- define "podgpu.filled" -}}
{{- $values := index . 0 -}}
{{- $none := dict "resources" dict "labels" dict "tolerations" list "priorityClassName" "" "visibleDevices" "" -}}
{{- range $key, $default := index . 1 -}}
{{- if kindIs "invalid" $default -}}
{{- /* Worked out where it is needed. */ -}}
{{- else if or (not (hasKey $values $key)) (kindIs "invalid" (get $values $key)) -}}
{{- $_ := set $values $key (ternary (get $none $key) (deepCopy $default) (hasKey $none $key)) -}}
{{- else if and (kindIs "map" $default) (not (hasKey $none $key)) -}}
{{- include "podgpu.filled" (list (get $values $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What an option of dcgm-exporter's says, as JSON: its value and where it stands, or nothing.
     Takes the root, the option's names, and its variable. */}}
{{- define "podgpu.said" -}}
{{- $root := index . 0 -}}
{{- $names := index . 1 -}}
{{- $variable := index . 2 -}}
{{- $said := dict -}}
{{- range $root.Values.extraEnv -}}
{{- if eq .name $variable -}}
{{- $said = dict "value" (.value | default (ternary "valueFrom" "" (hasKey . "valueFrom"))) "place" (printf "extraEnv: %s" $variable) -}}
{{- end -}}
{{- end -}}
{{- $waiting := "" -}}
{{- range $root.Values.arguments -}}
{{- $word := toString . -}}
{{- $option := regexReplaceAll "=.*$" (regexReplaceAll "^--?" $word "") "" -}}
{{- if $waiting -}}
{{- $said = dict "value" $word "place" (printf "arguments: %s" $waiting) -}}
{{- $waiting = "" -}}
{{- else if and (hasPrefix "-" $word) (has $option $names) -}}
{{- if contains "=" $word -}}
{{- $said = dict "value" (regexReplaceAll "^[^=]*=" $word "") "place" (printf "arguments: %s" (regexReplaceAll "=.*$" $word "")) -}}
{{- else -}}
{{- $waiting = $word -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $said | toJson -}}
{{- end -}}
