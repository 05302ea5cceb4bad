{{/* podgpu's configuration: the preset, with the values over it. */}}

{{/* Lay one mapping over another, which changes. Takes both. */}}
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

{{/* Whether the pods run under dcgm-exporter's command line. */}}
{{- define "podgpu.dcgm" -}}
{{- if or .Values.arguments .Values.dcgmExporter -}}yes{{- end -}}
{{- end -}}

{{- define "podgpu.web" -}}
{{- if or .Values.tlsServerConfig.enabled .Values.basicAuth.users -}}yes{{- end -}}
{{- end -}}

{{/* What the distribution says, as YAML. */}}
{{- define "podgpu.distribution" -}}
{{- get (.Files.Get "files/distributions.yaml" | fromYaml) .Values.distribution | toYaml -}}
{{- end -}}

{{/* The configuration, as YAML; nothing under dcgm-exporter's command line. */}}
{{- define "podgpu.config" -}}
{{- if not (include "podgpu.dcgm" .) -}}
{{- $config := .Files.Get (printf "files/presets/%s.yaml" .Values.preset) | fromYaml -}}
{{- include "podgpu.overlay" (list $config (deepCopy .Values.config)) -}}
{{- range $role := list "sources" "sinks" -}}
{{- if not (get $config $role) -}}
{{- fail (printf "config.%s: nothing is left; keep one" $role) -}}
{{- end -}}
{{- range $name, $it := get $config $role -}}
{{- if not $it.kind -}}
{{- fail (printf "config.%s.%s: the preset has none of that name, so it needs a kind" $role $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "podgpu.web" . -}}
{{- if dig "http" "web_config" "" $config -}}
{{- fail "config.http.web_config: tlsServerConfig and basicAuth make a web config of their own; give one of the two" -}}
{{- end -}}
{{- $_ := set $config "http" (merge (dict "web_config" "/etc/podgpu-web/web.yml") ($config.http | default dict)) -}}
{{- end -}}
{{- if .Values.customMetrics -}}
{{- if or (dig "counters" "file" "" $config) (dig "counters" "configmap" "" $config) -}}
{{- fail "config.counters: customMetrics is a list too; give one of the two" -}}
{{- end -}}
{{- $_ := set $config "counters" (merge (dict "file" "/etc/podgpu-counters/metrics") ($config.counters | default dict)) -}}
{{- end -}}
{{- $listens := dict -}}
{{- range $name, $sink := $config.sinks -}}
{{- if eq $sink.kind "prometheus" -}}{{- $_ := set $listens $name true -}}{{- end -}}
{{- end -}}
{{- if not (or $listens (dig "http" "listen" "" $config)) -}}
{{- /* The probes need somebody who answers. */ -}}
{{- $_ := set $config "http" (merge (dict "listen" ":9400") ($config.http | default dict)) -}}
{{- end -}}
{{- $config | toYaml -}}
{{- end -}}
{{- end -}}

{{/* The port on which podgpu listens. */}}
{{- define "podgpu.port" -}}
{{- $address := .Values.service.address -}}
{{- $place := "service.address" -}}
{{- if not (include "podgpu.dcgm" .) -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
{{- $address = dig "http" "listen" "" $config -}}
{{- $place = "config.http.listen" -}}
{{- $found := false -}}
{{- range $name, $sink := $config.sinks -}}
{{- if and (eq $sink.kind "prometheus") (not $found) -}}
{{- $found = true -}}
{{- $address = $sink.listen | default ":9400" -}}
{{- $place = printf "config.sinks.%s.listen" $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch ":[1-9][0-9]{0,4}$" $address) -}}
{{- fail (printf "%s: %q has no port that the chart could read; write it out, such as \":9400\"" $place $address) -}}
{{- end -}}
{{- regexFind "[0-9]+$" $address -}}
{{- end -}}

{{/* Whether there is a page for Prometheus. */}}
{{- define "podgpu.scraped" -}}
{{- if include "podgpu.dcgm" . -}}yes
{{- else -}}
{{- range (include "podgpu.config" . | fromYaml).sinks -}}{{- if eq .kind "prometheus" -}}yes{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whole seconds of a duration such as 1m30s, rounded up. */}}
{{- define "podgpu.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|[dhms])" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get (dict "d" 86400.0 "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001) $unit)) -}}
{{- end -}}
{{- ceil $sum -}}
{{- end -}}

{{/* The names of the sources, in their order: of two that tell the same the earlier one counts. */}}
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

{{/* The configuration as podgpu reads it. */}}
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
