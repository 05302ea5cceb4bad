{{/* Ports of podgpu, and times of scrapes. */}}

{{/* The sink that Prometheus scrapes, as JSON: its name and options, or nothing. The sink metrics if it exists, or else the first by name. */}}
{{- define "podgpu.page" -}}
{{- $page := dict -}}
{{- range $name, $sink := (include "podgpu.config" . | fromYaml).sinks -}}
{{- if and (eq $sink.kind "prometheus") (or (not $page) (eq $name "metrics")) -}}
{{- $page = dict "name" $name "sink" $sink -}}
{{- end -}}
{{- end -}}
{{- $page | toJson -}}
{{- end -}}

{{/* Whether Prometheus can scrape podgpu. */}}
{{- define "podgpu.scraped" -}}
{{- if or (include "podgpu.dcgm" .) (include "podgpu.page" . | fromJson) -}}yes{{- end -}}
{{- end -}}

{{/* The listen addresses by their settings, as JSON. */}}
{{- define "podgpu.listens" -}}
{{- $listens := dict -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
{{- with dig "http" "listen" "" $config -}}{{- $_ := set $listens "config.http.listen" . -}}{{- end -}}
{{- range $name, $sink := $config.sinks -}}
{{- if eq $sink.kind "prometheus" -}}
{{- $_ := set $listens (printf "config.sinks.%s.listen" $name) ($sink.listen | default ":9400") -}}
{{- end -}}
{{- end -}}
{{- $listens | toJson -}}
{{- end -}}

{{/* The port of an address. Arguments: the setting of the address, and the address. */}}
{{- define "podgpu.portof" -}}
{{- if not (regexMatch ":[1-9][0-9]{0,4}$" (index . 1)) -}}
{{- fail (printf "%s: %q has no port that the chart can read; write it, such as \":9400\"" (index . 0) (index . 1)) -}}
{{- end -}}
{{- regexFind "[0-9]+$" (index . 1) -}}
{{- end -}}

{{/* The port named metrics. */}}
{{- define "podgpu.port" -}}
{{- $place := "config.http.listen" -}}
{{- $address := "" -}}
{{- if include "podgpu.dcgm" . -}}
{{- $found := include "podgpu.option" (list . (list "a" "address") "DCGM_EXPORTER_LISTEN") | fromJson -}}
{{- $place = $found.place | default "service.address" -}}
{{- $address = $found.value | default (ternary ":9400" .Values.service.address (hasKey $found "value")) -}}
{{- else -}}
{{- with (include "podgpu.page" . | fromJson).name -}}{{- $place = printf "config.sinks.%s.listen" . -}}{{- end -}}
{{- $address = get (include "podgpu.listens" . | fromJson) $place -}}
{{- end -}}
{{- include "podgpu.portof" (list $place $address) -}}
{{- end -}}

{{/* All other ports, as JSON. */}}
{{- define "podgpu.others" -}}
{{- $main := include "podgpu.port" . -}}
{{- $closed := and .Values.networkPolicy.enabled (not .Values.networkPolicy.ingress.ports) -}}
{{- $others := list -}}
{{- range $place, $address := include "podgpu.listens" . | fromJson -}}
{{- if or $closed (regexMatch ":[1-9][0-9]{0,4}$" $address) -}}
{{- $others = append $others (include "podgpu.portof" (list $place $address)) -}}
{{- end -}}
{{- end -}}
{{- without ($others | uniq) $main | toJson -}}
{{- end -}}

{{/* Seconds of a duration such as 1m30s. */}}
{{- define "podgpu.exactly" -}}
{{- $units := dict "y" 31536000.0 "w" 604800.0 "d" 86400.0 "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|[ywdhms])" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Seconds of a duration, rounded up. */}}
{{- define "podgpu.seconds" -}}
{{- include "podgpu.exactly" . | float64 | ceil -}}
{{- end -}}

{{/* The scrape timeout, which must not be longer than the interval. */}}
{{- define "podgpu.scrapetimeout" -}}
{{- $interval := .Values.serviceMonitor.interval -}}
{{- $timeout := .Values.serviceMonitor.scrapeTimeout -}}
{{- $between := include "podgpu.exactly" $interval | float64 -}}
{{- if not $timeout -}}
{{- ternary "10s" $interval (gt $between 10.0) -}}
{{- else if gt (include "podgpu.exactly" $timeout | float64) $between -}}
{{- fail (printf "serviceMonitor.scrapeTimeout: %s is longer than the interval, %s, which Prometheus refuses; leave it empty, or use a longer interval" $timeout $interval) -}}
{{- else -}}
{{- $timeout -}}
{{- end -}}
{{- end -}}

{{/* minReadySeconds: how long a new pod has to be ready before the old one stops. */}}
{{- define "podgpu.minready" -}}
{{- if kindIs "invalid" .Values.minReadySeconds -}}
{{- add 5 (mul 2 (include "podgpu.seconds" .Values.serviceMonitor.interval | float64 | int)) -}}
{{- else -}}
{{- .Values.minReadySeconds -}}
{{- end -}}
{{- end -}}
