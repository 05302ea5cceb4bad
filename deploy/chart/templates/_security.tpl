{{/* The container's security context: the minimum that the configuration needs, merged with the values. */}}
{{- define "podgpu.security" -}}
{{- $needs := include "podgpu.needs" . | fromJson -}}
{{- $context := dict
      "runAsUser" (ternary 0 65532 (not (empty $needs.root)))
      "runAsGroup" 0
      "runAsNonRoot" (empty $needs.root)
      "allowPrivilegeEscalation" false
      "readOnlyRootFilesystem" true
      "capabilities" (dict "drop" (list "ALL"))
      "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if and $needs.root (include "podgpu.distribution" . | fromYaml).scc -}}
{{- $_ := set $context "seLinuxOptions" (dict "type" "spc_t") -}}
{{- end -}}
{{- include "podgpu.overlay" (list $context (deepCopy .Values.securityContext)) -}}
{{- if $context.privileged -}}
{{- /* The API server refuses both together. */ -}}
{{- $_ := unset $context "allowPrivilegeEscalation" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The security context of a container that needs nothing of the node. */}}
{{- define "podgpu.unprivileged" -}}
{{- if not (include "podgpu.distribution" . | fromYaml).scc -}}
runAsUser: 65532
runAsGroup: 65532
{{ end -}}
# On OpenShift the user is one of the namespace's range.
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The node affinity: nodes with a label for a GPU. */}}
{{- define "podgpu.affinity" -}}
{{- if .Values.affinity -}}
{{- toYaml .Values.affinity -}}
{{- else if and .Values.gpuNodesOnly (not .Values.nodeSelector) -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms: # one match is sufficient
      # GPU feature discovery, the GPU operator, and nodes labelled by hand.
      - matchExpressions:
          - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
      # Node feature discovery: a PCI device of NVIDIA, also with its class if configured.
      {{- range list "pci-10de" "pci-0300_10de" "pci-0302_10de" }}
      - matchExpressions:
          - {key: feature.node.kubernetes.io/{{ . }}.present, operator: In, values: ["true"]}
      {{- end }}
      {{- with (include "podgpu.distribution" . | fromYaml).labels }}
      # Labels of the distribution.
      {{- range . }}
      - matchExpressions:
          - {{ toJson . }}
      {{- end }}
      {{- end }}
{{- end -}}
{{- end -}}

{{/* A probe. Arguments: root, path, and the values. */}}
{{- define "podgpu.probe" -}}
{{- $root := index . 0 -}}
{{- $tls := $root.Values.tlsServerConfig -}}
{{- if and $tls.enabled (hasPrefix "Require" ($tls.clientAuthType | default "")) -}}
# The kubelet has no client certificate.
tcpSocket:
  port: metrics
{{ else -}}
httpGet:
  path: {{ index . 1 }}
  port: metrics
  scheme: {{ ternary "HTTPS" "HTTP" $tls.enabled }}
{{ end -}}
{{ toYaml (index . 2) }}
timeoutSeconds: 5
failureThreshold: 3
{{- end -}}
