{{/* podgpu's configuration: the preset, merged with the values. */}}

{{/* Merge the second mapping into the first, which is changed. Arguments: both mappings. */}}
{{- define "podgpu.overlay" -}}
{{- $under := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- $had := get $under $key | default dict -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $under $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $had) (eq ($value.kind | default $had.kind | toString) ($had.kind | toString)) -}}
{{- $_ := set $under $key $had -}}
{{- include "podgpu.overlay" (list $had $value) -}}
{{- else -}}
{{- $_ := set $under $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Add the ledger of usage.enabled to the configuration, unless it has one. Arguments: the values and the configuration. */}}
{{- define "podgpu.usageledger" -}}
{{- $usage := (index . 0).usage -}}
{{- $config := index . 1 -}}
{{- $ledgers := list -}}
{{- range $name, $sink := $config.sinks -}}
{{- if eq ($sink.kind | default "") "ledger" -}}{{- $ledgers = append $ledgers $name -}}{{- end -}}
{{- end -}}
{{- if and $usage.enabled (not $ledgers) -}}
{{- if dig "usage" "kind" "" $config.sinks -}}
{{- fail (printf "usage.enabled: config.sinks.usage is of kind %s, but the ledger has this name; rename that sink" $config.sinks.usage.kind) -}}
{{- end -}}
{{- $_ := set $config.sinks "usage" (merge (dict "kind" "ledger") ($config.sinks.usage | default dict) (dict "path" $usage.path)) -}}
{{- end -}}
{{- end -}}

{{/* Options that allow code which the configuration names, as JSON. They come from the values, so that write access to the
ConfigMap is not sufficient to add code. */}}
{{- define "podgpu.allowing" -}}
{{- $words := list -}}
{{- if .Values.allowConfiguredCode -}}
{{- $words = append $words "--allow-configured-code" -}}
{{- end -}}
{{- range (include "podgpu.needs" . | fromJson).libraries -}}
{{- $words = concat $words (list "--allow-library" .) -}}
{{- end -}}
{{- toJson $words -}}
{{- end -}}

{{/* Whether the pods run under dcgm-exporter's command line. */}}
{{- define "podgpu.dcgm" -}}
{{- if or .Values.arguments .Values.dcgmExporter .Values.dcgmConfigFile -}}yes{{- end -}}
{{- end -}}

{{/* The ConfigMap with dcgm-exporter's YAML file. */}}
{{- define "podgpu.dcgmfile" -}}
{{- .Values.dcgmConfigFile.name | default (printf "%s-config-file" (include "podgpu.fullname" .)) -}}
{{- end -}}

{{/* The distribution's entry of files/distributions.yaml, as YAML. */}}
{{- define "podgpu.distribution" -}}
{{- get (.Files.Get "files/distributions.yaml" | fromYaml) .Values.distribution | toYaml -}}
{{- end -}}

{{/* The configuration, as YAML; empty under dcgm-exporter's command line. */}}
{{- define "podgpu.config" -}}
{{- if not (include "podgpu.dcgm" .) -}}
{{- $config := .Files.Get (printf "files/presets/%s.yaml" .Values.preset) | fromYaml -}}
{{- include "podgpu.overlay" (list $config (deepCopy .Values.config)) -}}
{{- include "podgpu.usageledger" (list .Values $config) -}}
{{- range $role := list "sources" "sinks" -}}
{{- if not (get $config $role) -}}
{{- fail (printf "config.%s: there are none; keep at least one" $role) -}}
{{- end -}}
{{- range $name, $it := get $config $role -}}
{{- if not $it.kind -}}
{{- fail (printf "config.%s.%s: it is not in the preset; set its kind" $role $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "podgpu.web" . -}}
{{- if dig "http" "web_config" "" $config -}}
{{- fail "config.http.web_config: tlsServerConfig, basicAuth and webConfig create a web config too; set only one of them" -}}
{{- end -}}
{{- $_ := set $config "http" (merge (dict "web_config" "/etc/podgpu-web/web.yml") ($config.http | default dict)) -}}
{{- end -}}
{{- if .Values.customMetrics -}}
{{- if or (dig "counters" "file" "" $config) (dig "counters" "configmap" "" $config) -}}
{{- fail "config.counters: customMetrics is a counters list too; set only one of them" -}}
{{- end -}}
{{- $_ := set $config "counters" (merge (dict "file" "/etc/podgpu-counters/metrics") ($config.counters | default dict)) -}}
{{- end -}}
{{- $listens := dict -}}
{{- range $name, $sink := $config.sinks -}}
{{- if eq $sink.kind "prometheus" -}}{{- $_ := set $listens $name true -}}{{- end -}}
{{- end -}}
{{- if not (or $listens (dig "http" "listen" "" $config)) -}}
{{- /* The probes need a listener. */ -}}
{{- $_ := set $config "http" (merge (dict "listen" ":9400") ($config.http | default dict)) -}}
{{- end -}}
{{- $config | toYaml -}}
{{- end -}}
{{- end -}}

{{/* The names of the sources in their order: an earlier source takes precedence. */}}
{{- define "podgpu.order" -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
{{- $order := list -}}
{{- range .Values.sourceOrder -}}
{{- if not (hasKey $config.sources .) -}}
{{- fail (printf "sourceOrder: there is no source %q; there are %s" . (keys $config.sources | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $order = append $order . -}}
{{- end -}}
{{- range $kind := list "nvml" "hostengine" "dcgm" "" -}}
{{- range $name, $source := $config.sources -}}
{{- if and (or (eq $kind $source.kind) (not $kind)) (not (has $name $order)) -}}{{- $order = append $order $name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $order -}}
{{- end -}}

{{/* The text of the configuration file. */}}
{{- define "podgpu.file" -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
node: {{ $config.node | toJson }}
sources:
{{- range include "podgpu.order" . | fromJsonArray }}
  {{ . }}:
    {{- get $config.sources . | toYaml | nindent 4 }}
{{- end }}
{{ omit $config "node" "sources" | toYaml }}
{{- end -}}
