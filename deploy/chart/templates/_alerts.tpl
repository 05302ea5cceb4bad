{{/* The alert rules of files/alerts.yaml, changed by the values. */}}

{{/* The groups of rules, as JSON. Argument: the root. */}}
{{- define "podgpu.alertgroups" -}}
{{- $root := . -}}
{{- $names := include "podgpu.names" . | fromJson -}}
{{- $groups := list -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- $rules := list -}}
{{- if include "podgpu.groupneeded" (list $root .name) -}}
{{- range .rules -}}
{{- $rule := include "podgpu.alertrule" (list $root . $names) | fromJson -}}
{{- if $rule -}}{{- $rules = append $rules $rule -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (set . "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- dict "groups" $groups | toJson -}}
{{- end -}}

{{/* Whether the rules of a group can have series: some need a sink of certain kinds. Arguments: the root and the group's name. */}}
{{- define "podgpu.groupneeded" -}}
{{- $needs := dict "podgpu-queues" (list "otlp" "jsonl") "podgpu-ledgers" (list "ledger") -}}
{{- $name := index . 1 -}}
{{- if hasKey $needs $name -}}
{{- range (include "podgpu.config" (index . 0) | fromYaml).sinks -}}
{{- if has .kind (get $needs $name) -}}yes{{- end -}}
{{- end -}}
{{- else -}}yes{{- end -}}
{{- end -}}

{{/* A rule as JSON; an empty mapping if the values omit it. Arguments: the root, the rule, and the replaced names. */}}
{{- define "podgpu.alertrule" -}}
{{- $values := (index . 0).Values.prometheusRule -}}
{{- $rule := index . 1 -}}
{{- $names := index . 2 -}}
{{- $own := dict -}}
{{- if $rule.alert -}}{{- $own = get $values.rules $rule.alert | default dict -}}{{- end -}}
{{- if or (and $rule.alert (has $rule.alert $values.disabled)) (eq (toString $own.enabled) "false") -}}
{{- dict | toJson -}}
{{- else -}}
{{- $expr := include "podgpu.renamed" (list $rule.expr $names) -}}
{{- if not (kindIs "invalid" $own.threshold) -}}
{{- $expr = regexReplaceAll "[0-9.]+( +# threshold)" $expr (printf "%v${1}" $own.threshold) -}}
{{- end -}}
{{- $_ := set $rule "expr" $expr -}}
{{- if $rule.alert -}}
{{- range $key, $text := $rule.annotations -}}
{{- $_ := set $rule.annotations $key (include "podgpu.renamedtext" (list $text $names)) -}}
{{- end -}}
{{- if $values.runbookPrefix -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%sdocs/alerts.md#%s" $values.runbookPrefix (lower $rule.alert)) -}}
{{- end -}}
{{- $severity := dict -}}
{{- with $own.severity -}}{{- $severity = dict "severity" . -}}{{- end -}}
{{- $_ := set $rule "annotations" (merge dict ($own.annotations | default dict) $values.additionalRuleAnnotations $rule.annotations) -}}
{{- $_ := set $rule "labels" (merge dict $severity ($own.labels | default dict) $values.additionalRuleLabels $rule.labels) -}}
{{- with $own.for -}}{{- $_ := set $rule "for" . -}}{{- end -}}
{{- end -}}
{{- toJson $rule -}}
{{- end -}}
{{- end -}}
