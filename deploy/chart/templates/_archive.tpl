{{/* The archive of the ledgers: the container that writes it. */}}

{{/* The path of the ledger that is written to the archive. */}}
{{- define "podgpu.archivedledger" -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
{{- $paths := list -}}
{{- range $name, $sink := $config.sinks | default dict -}}
{{- if and (kindIs "map" $sink) (eq ($sink.kind | default "") "ledger") -}}
{{- $paths = append $paths ($sink.path | default "") -}}
{{- end -}}
{{- end -}}
{{- if or (include "podgpu.dcgm" .) (not $paths) -}}
{{- fail "archive.enabled: there is no ledger to write; set usage.enabled=true" -}}
{{- end -}}
{{- $path := .Values.archive.ledger | default (first $paths) -}}
{{- if and (gt (len $paths) 1) (not .Values.archive.ledger) -}}
{{- fail (printf "archive.ledger: config has %d ledgers; give the path of the one to write: %s" (len $paths) (join ", " $paths)) -}}
{{- end -}}
{{- if not (has $path $paths) -}}
{{- fail (printf "archive.ledger: config has no ledger with the path %s; its ledgers are %s" $path (join ", " $paths)) -}}
{{- end -}}
{{- if contains "${" $path -}}
{{- fail (printf "archive.enabled: the path of the ledger, %s, has a variable; write the whole path" $path) -}}
{{- end -}}
{{- $path -}}
{{- end -}}

{{/* Environment of a program of the archive. Arguments: env and envFrom. */}}
{{- define "podgpu.archiveenv" -}}
env:
  # It needs no GPU.
  - name: NVIDIA_VISIBLE_DEVICES
    value: void
  {{- with index . 0 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with index . 1 }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The container of the DaemonSet's pods that writes the archive. */}}
{{- define "podgpu.archivecontainer" -}}
{{- $needs := include "podgpu.needs" . | fromJson -}}
{{- $ledger := include "podgpu.archivedledger" . -}}
{{- $folder := dir $ledger -}}
{{- $own := include "podgpu.security" . | fromYaml -}}
- name: archive
  image: {{ include "podgpu.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - archive
    - {{ required "archive.to: give the archive, such as s3://BUCKET/PREFIX" .Values.archive.to | printf "--to=%s" | quote }}
    - {{ required "archive.cluster: give the cluster's name; it is part of each row" .Values.archive.cluster | printf "--cluster=%s" | quote }}
    - {{ printf "--ledger=%s" $ledger | quote }}
    - --interval={{ .Values.archive.interval }}
    - --grace={{ .Values.archive.grace }}
  {{- include "podgpu.archiveenv" (list .Values.archive.env .Values.archive.envFrom) | nindent 2 }}
  {{- with .Values.archive.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    # The user that owns the ledger, without a capability.
    runAsUser: {{ $own.runAsUser | int64 }}
    runAsGroup: {{ $own.runAsGroup | int64 }}
    runAsNonRoot: {{ ne ($own.runAsUser | int64) 0 }}
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
    {{- with $own.seLinuxOptions }}
    seLinuxOptions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  volumeMounts:
    {{- if hasKey $needs.mounts $folder }}
    - name: {{ printf "host-%s" (sha256sum $folder | trunc 8) }}
      mountPath: {{ $folder }}
    {{- else }}
    {{- $given := false }}
    {{- range .Values.extraVolumeMounts }}
    {{- if or (eq (clean .mountPath) $folder) (hasPrefix (printf "%s/" (clean .mountPath)) $ledger) }}
    {{- $given = true }}
    - {{ toYaml . | nindent 6 | trim }}
    {{- end }}
    {{- end }}
    {{- if not $given }}
    {{- fail (printf "archive.enabled: no volume of the pod contains the ledger %s" $ledger) }}
    {{- end }}
    {{- end }}
    - name: archive-files
      mountPath: /tmp
    {{- with .Values.archive.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
