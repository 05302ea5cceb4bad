{{/* The folder of the host to mount for a path. */}}

{{/* The folder to mount. Arguments: the setting of the path, the path, and whether it is a file: then its parent folder.
     For a path with a variable, the part before it. */}}
{{- define "podgpu.folder" -}}
{{- $path := index . 1 | toString -}}
{{- $known := regexReplaceAll "\\$?\\$\\{(.|\\n)*$" $path "" -}}
{{- if not (hasPrefix "/" $known) -}}
{{- fail (printf "%s: the chart cannot find the folder to mount for %q; write an absolute path" (index . 0) $path) -}}
{{- end -}}
{{- if ne $known $path -}}
{{- regexReplaceAll "[^/]*$" $known "" | clean -}}
{{- else if index . 2 -}}
{{- dir $path -}}
{{- else -}}
{{- clean $path -}}
{{- end -}}
{{- end -}}

{{/* Whether a folder must not be mounted: folders of the system, shared folders, and folders of podgpu's image. */}}
{{- define "podgpu.unmountable" -}}
{{- if or
      (regexMatch "^/(bin|boot|dev|etc|home|lib|lib32|lib64|media|mnt|opt|proc|root|run|sbin|snap|srv|sys|tmp|usr|var)?$" .)
      (regexMatch "^/(usr|usr/local|var)/(bin|cache|etc|lib|lib64|libexec|local|log|mail|opt|run|sbin|share|snap|spool|src|tmp)$" .)
      (regexMatch "^/(usr/)?lib/(x86_64|aarch64)-linux-gnu$" .)
      (regexMatch "^/(dev|proc|sys)/" .)
      (regexMatch "^/(var/)?run/(containerd|crio|docker|k3s|lock|secrets|systemd|user)(/|$)" .)
      (regexMatch "^/var/lib/(containerd|containers|docker|etcd|k0s|kubelet|rancher)$" .)
      (regexMatch "^/var/log/(containers|journal|pods)$" .)
      (regexMatch "^/etc/(kubernetes|ssl|systemd|dcgm-exporter)(/|$)" .)
      (regexMatch "^/(etc|opt)/podgpu(-[a-z]+)?(/|$)" .)
-}}yes{{- end -}}
{{- end -}}

{{/* Whether the values mount a path or a folder above it. Arguments: the root and the path. */}}
{{- define "podgpu.mountedbyvalues" -}}
{{- $path := index . 1 -}}
{{- range (index . 0).Values.extraVolumeMounts -}}
{{- $at := clean .mountPath -}}
{{- if or (eq $at $path) (hasPrefix (printf "%s/" $at) $path) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Add a folder of the host. Arguments: root, needs, the setting of the path, the path, whether it is a file, whether it is written, the reason. */}}
{{- define "podgpu.mount" -}}
{{- $root := index . 0 -}}
{{- $needs := index . 1 -}}
{{- $saying := index . 2 -}}
{{- $path := index . 3 | toString -}}
{{- $write := index . 5 -}}
{{- $folder := include "podgpu.folder" (list $saying $path (index . 4)) -}}
{{- $place := include "podgpu.distribution" $root | fromYaml -}}
{{- $hosts := dict
      "/var/lib/kubelet/pod-resources" ($root.Values.kubeletPath | default $place.podResources)
      "/var/lib/kubelet/device-plugins" $place.devicePlugins
      "/var/run/nri" $place.nri -}}
{{- if not (or (include "podgpu.mountedbyvalues" (list $root $folder)) (include "podgpu.mountedbyvalues" (list $root $path))) -}}
{{- $host := get $hosts $folder | default $folder | clean -}}
{{- range list $folder $host -}}
{{- if include "podgpu.unmountable" . -}}
{{- fail (printf "%s: for %q all of %s would be mounted; use a separate folder, such as %s/gpu/%s, or mount it with extraHostVolumes and extraVolumeMounts" (ternary $saying "kubeletPath" (eq . $folder)) (ternary $path $host (eq . $folder)) . (regexReplaceAll "^(/var)?/tmp$" . "/run" | trimSuffix "/") (base $path)) -}}
{{- end -}}
{{- end -}}
{{- $had := get $needs.mounts $folder | default (dict "why" list "write" false) -}}
{{- $_ := set $needs.mounts $folder (dict "host" $host "write" (or $write $had.write) "why" (append $had.why (index . 6))) -}}
{{- end -}}
{{- end -}}

{{/* Add a file or folder that podgpu writes. Arguments: root, needs, the setting of the path, the path, whether it is a file, the reason. */}}
{{- define "podgpu.written" -}}
{{- include "podgpu.mount" (list (index . 0) (index . 1) (index . 2) (index . 3) (index . 4) true (index . 5)) -}}
{{- include "podgpu.asroot" (list (index . 1) (index . 5)) -}}
{{- include "podgpu.exclusive" (list (index . 1) (index . 5)) -}}
{{- end -}}

{{/* Add the host's procfs at another path than /proc. Arguments: root, needs, the setting of the path, the path, the reason. */}}
{{- define "podgpu.proc" -}}
{{- $needs := index . 1 -}}
{{- $place := include "podgpu.folder" (list (index . 2) (index . 3) false) -}}
{{- if and (ne $place "/proc") (not (include "podgpu.mountedbyvalues" (list (index . 0) $place))) -}}
{{- if include "podgpu.unmountable" $place -}}
{{- fail (printf "%s: the host's /proc would hide %s; use a separate folder, such as /host/proc" (index . 2) $place) -}}
{{- end -}}
{{- $had := get $needs.mounts $place | default (dict "why" list) -}}
{{- $_ := set $needs.mounts $place (dict "host" "/proc" "write" false "why" (append $had.why (index . 4))) -}}
{{- end -}}
{{- end -}}
