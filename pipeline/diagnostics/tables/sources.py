"""Checks of sources."""

from typing import Final

from pipeline.component.check import BOTH, FAILS, NONE, WARNS, Check

CHECKS: Final = (
    Check(
        "nvml.driver",
        "`/proc/driver/nvidia/version`, `/sys/module/nvidia`, the PCI bus",
        "the NVIDIA kernel driver is not loaded on the host, or there is no NVIDIA GPU",
        "install the driver or load it (`modprobe nvidia`); keep podgpu off nodes without a GPU",
        FAILS,
        skips=False,
    ),
    Check(
        "nvml.library",
        "`libnvidia-ml.so.1`, as the dynamic linker finds it here",
        "the driver is on the host, but its library is not in this container: the runtime class "
        "or the container toolkit is missing",
        "set `runtimeClassName: nvidia`, install and configure NVIDIA's container toolkit, set "
        "`NVIDIA_VISIBLE_DEVICES=all` and `NVIDIA_DRIVER_CAPABILITIES=utility`",
        FAILS,
    ),
    Check(
        "nvml.versions",
        "NVML's initialisation; versions of the library and of the loaded driver",
        "they differ, for example after a driver upgrade: nothing can be read",
        "reload the driver or reboot the node, then restart the pod",
        FAILS,
    ),
    Check(
        "nvml.nodes",
        "`/dev/nvidiactl` and `/dev/nvidiaN`",
        "the library is installed, but the device nodes are missing",
        "run with the runtime class `nvidia` and `NVIDIA_VISIBLE_DEVICES=all`; on the host, "
        "`nvidia-modprobe -c 0 -u` creates them",
        FAILS,
    ),
    Check(
        "nvml.access",
        "opening `/dev/nvidiactl`, NVML's initialisation and its calls",
        "the device nodes exist and access is denied, or every call fails: a daemon-reload of "
        "systemd revoked the container's access to its devices",
        "restart the pod; as a permanent fix, use CDI for devices, or create the links of the "
        "device nodes in `/dev/char`",
        FAILS,
        skips=False,
    ),
    Check(
        "nvml.gpus",
        "every GPU that the driver lists, by NVML",
        "a GPU is lost or needs a reset, returns errors, or is not visible in this container",
        "according to the error: reset a lost GPU; give the container a GPU that it may not use; "
        "`dmesg` shows the XID; `NVIDIA_VISIBLE_DEVICES=all` makes all GPUs visible",
        FAILS,
        skips=False,
    ),
    Check(
        "nvml.mig",
        "MIG mode and MIG instances of every GPU",
        "a change of MIG mode needs a reset, or the instances or the mode cannot be read",
        "reset the GPU while no process uses it; set `NVIDIA_MIG_MONITOR_DEVICES=all` and run "
        "privileged to see instances of other containers",
        WARNS,
        skips=False,
    ),
    Check(
        "nvml.profiling",
        "whether NVML provides the profiling fields that are selected",
        "GPUs before Hopper provide these fields through DCGM only: their series are missing; for "
        "default fields this is reported, but is no warning",
        "add a source of kind `hostengine`, or remove the fields from the counters file",
        WARNS,
    ),
    Check(
        "nvml.processes",
        "`/proc/self/ns/pid`",
        "the driver shows a container only its own processes: usage of a shared device is "
        "unattributed",
        "set `hostPID: true` for podgpu's pod if you need usage per container",
        NONE,
    ),
    Check(
        "podresources.socket",
        "each of `sockets`, and the socket paths of other distributions",
        "the socket is missing, not mounted, not readable, elsewhere, or does not respond",
        "mount the folder `pod-resources` of the kubelet's root (for another root: "
        "`kubeletPath=ROOT/pod-resources` or `distribution` of the chart, else `sockets`), run as "
        "root or with CAP_DAC_OVERRIDE",
        FAILS,
        skips=False,
    ),
    Check(
        "podresources.version",
        "which methods the kubelet offers",
        "the kubelet is too old: it does not report ResourceClaims, or allocatable devices",
        "upgrade the kubelet to 1.23 or newer",
        WARNS,
        skips=False,
    ),
    Check(
        "podresources.devices",
        "the devices that the kubelet offers to pods",
        "no device plugin has registered, or `resources` does not match the resource names",
        "check that the device plugin's pod runs on this node; set `resources` to its names",
        WARNS,
        skips=False,
    ),
    Check(
        "podresources.sharing",
        "the ids of the devices that the kubelet offers",
        "the device plugin shares GPUs by time-slicing: several pods hold one GPU, and its "
        "readings have no pod labels",
        "nothing, if sharing is intended: `podgpu_device_holder_info` names the pods; with MIG "
        "instances, readings are per pod",
        NONE,
        skips=False,
    ),
    Check(
        "pods.server",
        "the API server, by a request for one pod of this node",
        "it cannot be reached, it does not accept the credentials (token expired), or it fails",
        "check that the address is correct and that a NetworkPolicy allows podgpu; renew the token "
        "or the kubeconfig; read the server's log",
        BOTH,
        skips=False,
    ),
    Check(
        "pods.rbac",
        "each request that the source makes: list and watch of pods and of ResourceSlices, "
        "get of a ResourceClaim",
        "a permission is missing",
        "give the service account a ClusterRole with that verb",
        BOTH,
        skips=False,
    ),
    Check(
        "checkpoint.file",
        "the kubelet's checkpoint of device plugins",
        "it is missing, not mounted, not readable, or has an unknown format",
        "mount the folder `device-plugins` of the kubelet's root, and set `path` if the kubelet "
        "has another root",
        BOTH,
        skips=False,
    ),
    Check(
        "podlist.file",
        "podlist.json",
        "it is missing, malformed, from the future, or stale: its writer has stopped, or a mount "
        "of the file shows an old version",
        "check that its writer runs; mount the folder instead of the file; fix the entries that "
        "are listed",
        BOTH,
        skips=False,
    ),
    Check(
        "nri.socket",
        "the container runtime's NRI socket; podgpu doctor does not connect to it",
        "NRI is disabled in the runtime, nothing listens, its folder is not mounted, or podgpu "
        "does not run as root",
        "containerd 1.7: `disable = false` for NRI; CRI-O: `enable_nri = true`; mount "
        "`/var/run/nri`; run as root",
        FAILS,
    ),
    Check(
        "dcgm.page",
        "the metrics page of dcgm-exporter, read once",
        "it cannot be read, it has no DCGM metric, or it is podgpu's own page",
        "check that dcgm-exporter runs on this node, and that `url` or `path` names its page",
        FAILS,
        skips=False,
    ),
    Check(
        "hostengine.library",
        "DCGM's client library",
        "it is missing, or it is another library",
        "add it to the image or mount it, and set `library`",
        FAILS,
    ),
    Check(
        "hostengine.address",
        "the address of the host engine: podgpu doctor connects and disconnects",
        "nothing listens there",
        "start nv-hostengine on the node, or set `address`",
        FAILS,
        skips=False,
    ),
    Check(
        "kernel.log",
        "the kernel's log, by default `/dev/kmsg`: podgpu doctor opens it and reads one record",
        "it does not exist or may not be opened: the processes of XID errors are unknown",
        "mount `/dev/kmsg` (hostPath, type CharDevice); `privileged: true`, user 0, and CAP_SYSLOG "
        "if `kernel.dmesg_restrict` is 1",
        FAILS,
        skips=False,
    ),
    Check(
        "kernel.processes",
        "`proc`: whether it shows the processes of the host",
        "it shows the processes of one container only: processes named in the kernel log cannot be "
        "attributed",
        "set `hostPID: true` for podgpu's pod, or mount the host's /proc and set `proc`",
        WARNS,
        skips=False,
    ),
    Check(
        "replay.recording",
        "the recording's file",
        "it does not exist or is not a recording",
        "give the path of a file that `podgpu record` wrote, or `builtin:demo`",
        FAILS,
        skips=False,
    ),
)
