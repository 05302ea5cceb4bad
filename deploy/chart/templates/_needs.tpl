{{/* What the enabled sources and sinks need: folders of the host, permissions, root; and why two pods cannot share a node. */}}

{{/* Add a permission at the API server. Arguments: needs, group, resource, verbs. */}}
{{- define "podgpu.right" -}}
{{- $needs := index . 0 -}}
{{- $rule := dict "apiGroups" (list (index . 1)) "resources" (list (index . 2)) "verbs" (index . 3) -}}
{{- if not (has $rule $needs.rules) -}}
{{- $_ := set $needs "rules" (append $needs.rules $rule) -}}
{{- end -}}
{{- end -}}

{{- define "podgpu.asroot" -}}
{{- $needs := index . 0 -}}
{{- $_ := set $needs "root" (append $needs.root (index . 1)) -}}
{{- end -}}

{{- define "podgpu.exclusive" -}}
{{- $needs := index . 0 -}}
{{- $_ := set $needs "exclusive" (append $needs.exclusive (index . 1)) -}}
{{- end -}}

{{- define "podgpu.source" -}}
{{- $root := index . 0 -}}
{{- $needs := index . 1 -}}
{{- $who := printf "source %s" (index . 2) -}}
{{- $at := printf "config.sources.%s" (index . 2) -}}
{{- $it := index . 3 -}}
{{- if $it.proc -}}
{{- include "podgpu.proc" (list $root $needs (printf "%s.proc" $at) $it.proc (printf "%s reads there which container a process belongs to" $who)) -}}
{{- end -}}
{{- if and (eq $it.kind "nvml") (ne (toString $it.usage) "false") (ne (toString $it.processes) "false") -}}
{{- $_ := set $needs "usage" true -}}
{{- end -}}
{{- if eq $it.kind "podresources" -}}
{{- range $it.sockets | default (list "/var/lib/kubelet/pod-resources/kubelet.sock") -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.sockets" $at) . true false (printf "%s queries the kubelet's socket, which the kubelet recreates at its start" $who)) -}}
{{- end -}}
{{- include "podgpu.asroot" (list $needs (printf "%s: the kubelet's socket belongs to root" $who)) -}}
{{- else if eq $it.kind "kernel" -}}
{{- $log := $it.path | default "/dev/kmsg" -}}
{{- if not (include "podgpu.mountedbyvalues" (list $root $log)) -}}
{{- $_ := set $needs.files $log (dict "host" "/dev/kmsg" "type" "CharDevice" "why" (printf "%s reads the kernel log" $who)) -}}
{{- end -}}
{{- include "podgpu.asroot" (list $needs (printf "%s: on some nodes only root can read the kernel log" $who)) -}}
{{- $_ := set $needs "privileged" (append $needs.privileged (printf "%s reads the kernel log" $who)) -}}
{{- else if eq $it.kind "checkpoint" -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.path" $at) ($it.path | default "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint") true false (printf "%s reads the kubelet's checkpoint, a file that the kubelet replaces" $who)) -}}
{{- include "podgpu.asroot" (list $needs (printf "%s: only root can read the checkpoint" $who)) -}}
{{- else if eq $it.kind "podlist" -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.path" $at) ($it.path | default "/var/lib/kubelet/pod-resources/podlist.json") true false (printf "%s reads podlist.json" $who)) -}}
{{- else if eq $it.kind "jobfiles" -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.path" $at) ($it.path | default "/run/gpu-jobs") false false (printf "%s reads the jobs of a batch system" $who)) -}}
{{- else if eq $it.kind "nri" -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.socket" $at) ($it.socket | default "/var/run/nri/nri.sock") true false (printf "%s connects as a plugin to the container runtime's socket" $who)) -}}
{{- include "podgpu.asroot" (list $needs (printf "%s: the runtime's socket belongs to root" $who)) -}}
{{- if ne ($it.inject | default "off" | toString) "off" -}}
{{- include "podgpu.exclusive" (list $needs (printf "%s: two plugins that inject prevent the creation of containers" $who)) -}}
{{- end -}}
{{- else if eq $it.kind "docker" -}}
{{- $socket := $it.socket | default "/var/run/docker.sock" -}}
{{- if not (include "podgpu.mountedbyvalues" (list $root $socket)) -}}
{{- $_ := set $needs.files $socket (dict "host" $socket "type" "Socket" "why" (printf "%s reads the containers of Docker or Podman" $who)) -}}
{{- end -}}
{{- include "podgpu.asroot" (list $needs (printf "%s: the daemon's socket belongs to root" $who)) -}}
{{- else if eq $it.kind "pods" -}}
{{- if not $it.kubeconfig -}}
{{- include "podgpu.right" (list $needs "" "pods" (list "list" "watch")) -}}
{{- if ne (toString $it.resource_claims) "false" -}}
{{- include "podgpu.right" (list $needs "resource.k8s.io" "resourceclaims" (list "get")) -}}
{{- end -}}
{{- if ne (toString $it.resource_slices) "false" -}}
{{- include "podgpu.right" (list $needs "resource.k8s.io" "resourceslices" (list "list" "watch")) -}}
{{- end -}}
{{- end -}}
{{- else if and (eq $it.kind "dcgm") $it.path -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.path" $at) $it.path true false (printf "%s reads an exporter's file" $who)) -}}
{{- else if eq $it.kind "hostengine" -}}
{{- $address := trimPrefix "unix://" ($it.address | default "") -}}
{{- if hasPrefix "/" $address -}}
{{- include "podgpu.mount" (list $root $needs (printf "%s.address" $at) $address true false (printf "%s queries DCGM's host engine on its socket" $who)) -}}
{{- end -}}
{{- $library := $it.library | default "" -}}
{{- if and (hasPrefix "/" $library) (not (include "podgpu.mountedbyvalues" (list $root $library))) -}}
{{- if contains "${" $library -}}
{{- fail (printf "%s.library: %q: the chart cannot mount a path with a variable; write the whole path" $at $library) -}}
{{- end -}}
{{- $_ := set $needs.files $library (dict "host" $library "why" (printf "%s calls DCGM's client library" $who)) -}}
{{- end -}}
{{- if and (hasPrefix "/" $library) (not (contains "${" $library)) -}}
{{- $_ := set $needs "libraries" (append $needs.libraries $library | uniq) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "podgpu.sink" -}}
{{- $root := index . 0 -}}
{{- $needs := index . 1 -}}
{{- $who := printf "sink %s" (index . 2) -}}
{{- $at := printf "config.sinks.%s" (index . 2) -}}
{{- $it := index . 3 -}}
{{- if and (eq $it.kind "jsonl") (ne ($it.path | default "-") "-") -}}
{{- include "podgpu.written" (list $root $needs (printf "%s.path" $at) $it.path true (printf "%s writes its lines" $who)) -}}
{{- else if eq $it.kind "podlist" -}}
{{- include "podgpu.written" (list $root $needs (printf "%s.path" $at) ($it.path | default "/var/lib/kubelet/pod-resources/podlist.json") true (printf "%s writes podlist.json" $who)) -}}
{{- else if eq $it.kind "textfile" -}}
{{- include "podgpu.written" (list $root $needs (printf "%s.path" $at) ($it.path | default "") true (printf "%s writes the metrics for node_exporter" $who)) -}}
{{- else if eq $it.kind "ledger" -}}
{{- include "podgpu.written" (list $root $needs (printf "%s.path" $at) ($it.path | default "") true (printf "%s stores the usage of containers" $who)) -}}
{{- else if eq $it.kind "events" -}}
{{- include "podgpu.exclusive" (list $needs (printf "%s: two would write each Event twice" $who)) -}}
{{- if not $it.kubeconfig -}}
{{- include "podgpu.right" (list $needs "" "events" (list "create" "patch")) -}}
{{- end -}}
{{- else if eq $it.kind "otlp" -}}
{{- include "podgpu.exclusive" (list $needs (printf "%s: data that two podgpus push counts twice" $who)) -}}
{{- else if or (eq $it.kind "node") (eq $it.kind "pods") -}}
{{- include "podgpu.exclusive" (list $needs (printf "%s: only one podgpu may write a node's annotations" $who)) -}}
{{- if not $it.kubeconfig -}}
{{- include "podgpu.right" (list $needs "" (ternary "nodes" "pods" (eq $it.kind "node")) (list "get" "patch")) -}}
{{- end -}}
{{- end -}}
{{- with dig "queue" "path" "" $it -}}
{{- include "podgpu.written" (list $root $needs (printf "%s.queue.path" $at) . false (printf "%s keeps its queue" $who)) -}}
{{- end -}}
{{- end -}}

{{/* What dcgm-exporter's options need; they are set by arguments, environment variables and values. */}}
{{- define "podgpu.dcgmneeds" -}}
{{- $root := index . 0 -}}
{{- $needs := index . 1 -}}
{{- $found := dict "labels" $root.Values.kubernetes.enablePodLabels "uid" $root.Values.kubernetes.enablePodUID "dra" $root.Values.kubernetesDRA.enabled "virtual" "" "map" "" "socket" "" -}}
{{- $words := dict
      "kubernetes-enable-pod-labels" "labels" "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS" "labels"
      "kubernetes-enable-pod-uid" "uid" "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID" "uid"
      "kubernetes-enable-dra" "dra" "KUBERNETES_ENABLE_DRA" "dra"
      "kubernetes-virtual-gpus" "virtual" "KUBERNETES_VIRTUAL_GPUS" "virtual"
      "m" "map" "configmap-data" "map" "DCGM_EXPORTER_CONFIGMAP_DATA" "map"
      "pod-resources-kubelet-socket" "socket" "DCGM_POD_RESOURCES_KUBELET_SOCKET" "socket" -}}
{{- range $root.Values.extraEnv -}}
{{- $name := .name -}}{{- $value := .value -}}
{{- with get $words $name -}}{{- $_ := set $found . ($value | default "") -}}{{- end -}}
{{- end -}}
{{- $waiting := "" -}}
{{- range $root.Values.arguments -}}
{{- $word := toString . -}}
{{- if $waiting -}}
{{- $_ := set $found $waiting $word -}}
{{- $waiting = "" -}}
{{- else if hasPrefix "-" $word -}}
{{- $option := regexReplaceAll "=.*$" (regexReplaceAll "^--?" $word "") "" -}}
{{- with get $words $option -}}
{{- if contains "=" $word -}}{{- $_ := set $found . (regexReplaceAll "^[^=]*=" $word "") -}}
{{- else if has . (list "map" "socket") -}}{{- $waiting = . -}}
{{- else -}}{{- $_ := set $found . true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $on := list -}}
{{- range list "labels" "uid" "dra" "virtual" -}}
{{- if has (get $found . | toString | lower) (list "true" "1" "t") -}}{{- $on = append $on . -}}{{- end -}}
{{- end -}}
{{- if $on -}}{{- include "podgpu.right" (list $needs "" "pods" (list "list" "watch")) -}}{{- end -}}
{{- if has "virtual" $on -}}{{- $_ := set $needs "usage" true -}}{{- end -}}
{{- if has "dra" $on -}}
{{- include "podgpu.right" (list $needs "resource.k8s.io" "resourceclaims" (list "get")) -}}
{{- include "podgpu.right" (list $needs "resource.k8s.io" "resourceslices" (list "list" "watch")) -}}
{{- end -}}
{{- if regexMatch "^[^:]+:[^:]+$" $found.map -}}{{- $_ := set $needs "maps" (list $found.map) -}}{{- end -}}
{{- include "podgpu.mount" (list $root $needs "arguments: --pod-resources-kubelet-socket" ($found.socket | default "/var/lib/kubelet/pod-resources/kubelet.sock") true false "podgpu queries the kubelet's socket, which the kubelet recreates at its start") -}}
{{- include "podgpu.asroot" (list $needs "the kubelet's socket belongs to root") -}}
{{- $engine := include "podgpu.option" (list $root (list "r" "remote-hostengine-info") "DCGM_REMOTE_HOSTENGINE_INFO") | fromJson -}}
{{- $address := trimPrefix "unix://" ($engine.value | default "") -}}
{{- if hasPrefix "/" $address -}}
{{- include "podgpu.mount" (list $root $needs $engine.place $address true false "podgpu queries DCGM's host engine on its socket") -}}
{{- end -}}
{{- end -}}

{{/* All needs, as JSON. */}}
{{- define "podgpu.needs" -}}
{{- $needs := dict "mounts" dict "files" dict "rules" list "maps" list "root" list "exclusive" list "privileged" list "libraries" list "usage" false -}}
{{- $root := . -}}
{{- if include "podgpu.dcgm" . -}}
{{- include "podgpu.dcgmneeds" (list $root $needs) -}}
{{- else -}}
{{- $config := include "podgpu.config" . | fromYaml -}}
{{- range $name, $it := $config.sources -}}{{- include "podgpu.source" (list $root $needs $name $it) -}}{{- end -}}
{{- range $name, $it := $config.sinks -}}{{- include "podgpu.sink" (list $root $needs $name $it) -}}{{- end -}}
{{- if and (dig "counters" "configmap" "" $config) (not (dig "counters" "kubeconfig" "" $config)) -}}
{{- $_ := set $needs "maps" (list $config.counters.configmap) -}}
{{- end -}}
{{- end -}}
{{- if .Values.hostNetwork -}}{{- include "podgpu.exclusive" (list $needs "hostNetwork") -}}{{- end -}}
{{- if .Values.hostPort -}}{{- include "podgpu.exclusive" (list $needs "hostPort") -}}{{- end -}}
{{- $driver := dig "driver" dict (include "podgpu.distribution" . | fromYaml) -}}
{{- $base := .Values.driverRoot | default $driver.root | default "" -}}
{{- if $base -}}{{- $base = trimSuffix "/" $base | default "/" -}}{{- end -}}
{{- if and $base (ne $base "none") -}}
{{- $library := .Values.driverLibrary | default (ternary $driver.library "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" (eq $base ($driver.root | default ""))) -}}
{{- $_ := set $needs.files "/opt/podgpu-driver/libnvidia-ml.so.1" (dict "host" (printf "%s%s" (trimSuffix "/" $base) $library) "why" "the library of a driver that NVIDIA's toolkit does not give to containers") -}}
{{- $_ := set $needs "driver" true -}}
{{- end -}}
{{- $token := .Values.serviceAccount.automountServiceAccountToken -}}
{{- if kindIs "invalid" $token -}}{{- $token = or (not (empty $needs.rules)) (not (empty $needs.maps)) -}}{{- end -}}
{{- $_ := set $needs "token" $token -}}
{{- $needs | toJson -}}
{{- end -}}
