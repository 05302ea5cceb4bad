{{/* Names of labels and metrics for alerts and dashboards, which are written with the names of the form dcgm. */}}

{{/* Whether a switch is on. Argument: WORD or WORD=VALUE. */}}
{{- define "podgpu.switch" -}}
{{- if has (regexReplaceAll "^[^=]*=?" . "" | lower) (list "" "1" "t" "true") -}}yes{{- end -}}
{{- end -}}

{{/* The label form, and whether metrics lack the node's name; as JSON. */}}
{{- define "podgpu.form" -}}
{{- $labels := "" -}}
{{- $old := "" -}}
{{- $nameless := "" -}}
{{- $place := "arguments: --labels" -}}
{{- if include "podgpu.dcgm" . -}}
{{- range .Values.extraEnv -}}
{{- $value := .value | default "" | toString -}}
{{- if $value -}}
{{- if eq .name "PODGPU_LABELS" -}}{{- $labels = $value -}}{{- $place = "extraEnv: PODGPU_LABELS" -}}{{- end -}}
{{- if eq .name "DCGM_EXPORTER_USE_OLD_NAMESPACE" -}}{{- $old = include "podgpu.switch" (printf "=%s" $value) -}}{{- end -}}
{{- if eq .name "DCGM_EXPORTER_NO_HOSTNAME" -}}{{- $nameless = include "podgpu.switch" (printf "=%s" $value) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $next := false -}}
{{- range .Values.arguments -}}
{{- $word := toString . -}}
{{- if $next -}}
{{- $labels = $word -}}
{{- $next = false -}}
{{- else if regexMatch "^--?labels$" $word -}}
{{- $next = true -}}
{{- else if regexMatch "^--?labels=" $word -}}
{{- $labels = regexReplaceAll "^--?labels=" $word "" -}}
{{- else if regexMatch "^--?(o|use-old-namespace)(=|$)" $word -}}
{{- $old = include "podgpu.switch" $word -}}
{{- else if regexMatch "^--?(n|no-hostname)(=|$)" $word -}}
{{- $nameless = include "podgpu.switch" $word -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- with include "podgpu.page" . | fromJson -}}
{{- $labels = .sink.labels | default "" | toString -}}
{{- $place = printf "config.sinks.%s.labels" .name -}}
{{- if hasKey .sink "hostname" -}}{{- $nameless = ternary "yes" "" (eq (toString .sink.hostname) "false") -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $labels = $labels | default (ternary "dcgm-old" "dcgm" (eq $old "yes")) -}}
{{- $forms := .Files.Get "files/forms.yaml" | fromYaml -}}
{{- if not (hasKey $forms $labels) -}}
{{- fail (printf "%s: %q is no label form; use one of %s, or set prometheusRule.enabled and dashboards.enabled to false" $place $labels (keys $forms | sortAlpha | join ", ")) -}}
{{- end -}}
{{- dict "labels" $labels "nameless" $nameless | toJson -}}
{{- end -}}

{{/* Names that differ from the form dcgm: new names by old names, as JSON. */}}
{{- define "podgpu.names" -}}
{{- $form := include "podgpu.form" . | fromJson -}}
{{- $names := get (.Files.Get "files/forms.yaml" | fromYaml) $form.labels -}}
{{- if $form.nameless -}}
{{- /* The monitor adds the node to every series. */ -}}
{{- $_ := set $names "Hostname" "node" -}}
{{- end -}}
{{- if not .Values.serviceMonitor.honorLabels -}}
{{- /* Prometheus replaces these labels by those of podgpu's pod, and renames them. */ -}}
{{- range list "namespace" "pod" "container" -}}
{{- if not (hasKey $names .) -}}{{- $_ := set $names . (printf "exported_%s" .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* An expression with replaced names, except in variables. Arguments: the text and the names. */}}
{{- define "podgpu.renamed" -}}
{{- $text := index . 0 -}}
{{- range $old, $new := index . 1 -}}
{{- $text = regexReplaceAll (printf "(^|[^$\\w])%s\\b" $old) $text (printf "${1}%s" $new) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* A text with replaced names within {{ }}. Arguments: the text and the names. */}}
{{- define "podgpu.renamedtext" -}}
{{- $text := index . 0 -}}
{{- $names := index . 1 -}}
{{- range regexFindAll "(?s)\\{\\{.*?\\}\\}" $text -1 | uniq -}}
{{- $text = replace . (include "podgpu.renamed" (list . $names)) $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* A dashboard with replaced names in queries, legends, annotations and columns of tables. Arguments: its text and the names. */}}
{{- define "podgpu.dashboard" -}}
{{- $names := index . 1 -}}
{{- $lines := list -}}
{{- range splitList "\n" (index . 0) -}}
{{- $line := . -}}
{{- if regexMatch "^\\s*\"(expr|legendFormat|definition|query|titleFormat|textFormat|tagKeys)\": \"" $line -}}
{{- $line = include "podgpu.renamed" (list $line $names) -}}
{{- else -}}
{{- $word := regexFind "^\\s*\"\\w+\"(:|,?$)" $line | regexFind "\\w+" -}}
{{- if hasKey $names $word -}}
{{- $line = replace (printf "\"%s\"" $word) (printf "\"%s\"" (get $names $word)) $line -}}
{{- end -}}
{{- end -}}
{{- $lines = append $lines $line -}}
{{- end -}}
{{- $lines | join "\n" -}}
{{- end -}}
