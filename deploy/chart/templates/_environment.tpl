{{/* The container's environment variables, as JSON, without those of extraEnv. */}}
{{- define "podgpu.environment" -}}
{{- $all := list -}}
{{- with .Values.visibleDevices -}}
{{- $all = append $all (dict "name" "NVIDIA_VISIBLE_DEVICES" "value" . "why" "With these, NVIDIA's container toolkit mounts the driver's library and gives access to the GPUs.") -}}
{{- $all = append $all (dict "name" "NVIDIA_DRIVER_CAPABILITIES" "value" "utility") -}}
{{- end -}}
{{- if (include "podgpu.needs" . | fromJson).driver -}}
{{- $all = append $all (dict "name" "LD_LIBRARY_PATH" "value" "/opt/podgpu-driver") -}}
{{- end -}}
{{- if include "podgpu.dcgm" . -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_KUBERNETES" "value" "true") -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_LISTEN" "value" .Values.service.address) -}}
{{- if .Values.kubernetes.enablePodLabels -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS" "value" "true") -}}
{{- end -}}
{{- if .Values.kubernetes.enablePodUID -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID" "value" "true") -}}
{{- end -}}
{{- with .Values.kubernetes.podLabelAllowlistRegex -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX" "value" (kindIs "string" . | ternary . (join "," .))) -}}
{{- end -}}
{{- if .Values.kubernetesDRA.enabled -}}
{{- $all = append $all (dict "name" "KUBERNETES_ENABLE_DRA" "value" "true") -}}
{{- end -}}
{{- with .Values.dcgmConfigFile -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_CONFIG_FILE" "value" .mountPath) -}}
{{- end -}}
{{- if include "podgpu.web" . -}}
{{- $all = append $all (dict "name" "DCGM_EXPORTER_WEB_CONFIG_FILE" "value" "/etc/podgpu-web/web.yml") -}}
{{- end -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}
