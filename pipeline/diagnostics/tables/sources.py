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
        "the driver is on the host and its library isn't in this container: the runtime class or "
        "the container toolkit is missing",
        "set `runtimeClassName: nvidia`, install and configure NVIDIA's container toolkit, set "
        "`NVIDIA_VISIBLE_DEVICES=all` and `NVIDIA_DRIVER_CAPABILITIES=utility`",
        FAILS,
    ),
    Check(
        "nvml.versions",
        "NVML's initialisation; versions of the library and of the loaded driver",
        "they differ, as after an upgrade of the driver: nothing can be read",
        "reload the driver or reboot the node, then restart the pod",
        FAILS,
    ),
    Check(
        "nvml.nodes",
        "`/dev/nvidiactl` and `/dev/nvidiaN`",
        "the library is here, device nodes are not",
        "run with the runtime class `nvidia` and `NVIDIA_VISIBLE_DEVICES=all`; on the host, "
        "`nvidia-modprobe -c 0 -u` makes them",
        FAILS,
    ),
    Check(
        "nvml.access",
        "opening `/dev/nvidiactl`, NVML's initialisation and its calls",
        "the nodes are here and may not be used, or every call fails: a daemon-reload of systemd "
        "took the container its devices",
        "restart the pod; for good, hand devices out by CDI, or let the nodes have their links in "
        "`/dev/char`",
        FAILS,
        skips=False,
    ),
    Check(
        "nvml.gpus",
        "every GPU that the driver lists, by NVML",
        "a GPU is lost or needs a reset, gives errors, or isn't shown to this container",
        "by what it answers: a lost one is to be reset, one without permission to be handed to the "
        "container; `dmesg` has its XID; `NVIDIA_VISIBLE_DEVICES=all` shows all",
        FAILS,
        skips=False,
    ),
    Check(
        "nvml.mig",
        "MIG mode and MIG instances of every GPU",
        "a change of MIG mode waits for a reset, or instances or the mode can't be seen",
        "reset the GPU while nobody uses it; set `NVIDIA_MIG_MONITOR_DEVICES=all` and run "
        "privileged to see instances of others",
        WARNS,
        skips=False,
    ),
    Check(
        "nvml.profiling",
        "whether NVML gives the profiling fields that are asked for",
        "cards before Hopper have them from DCGM alone: their series are missing; of the usual "
        "fields, which nobody chose, that is told and no fault",
        "add a source of kind `hostengine`, or take the fields out of the counters file",
        WARNS,
    ),
    Check(
        "nvml.processes",
        "`/proc/self/ns/pid`",
        "the driver shows a container no processes but its own: what a shared device does is "
        "nobody's",
        "set `hostPID: true` for podgpu's pod where somebody needs them",
        NONE,
    ),
    Check(
        "podresources.socket",
        "each of `sockets`, and the places of other distributions",
        "the socket is absent, not mounted, not readable, elsewhere, or nobody answers",
        "mount the folder `pod-resources` of the kubelet's root (another root: "
        "`kubeletPath=ROOT/pod-resources` or `distribution` of the chart, else `sockets`), run as "
        "root or with CAP_DAC_OVERRIDE",
        FAILS,
        skips=False,
    ),
    Check(
        "podresources.version",
        "which methods the kubelet offers",
        "the kubelet is too old: no resource claims, or no word of what is free",
        "upgrade the kubelet to 1.23 or newer",
        WARNS,
        skips=False,
    ),
    Check(
        "podresources.devices",
        "what the kubelet offers to pods",
        "the device plugin has registered nothing, or under names that `resources` doesn't match",
        "see that the device plugin's pod runs on this node; set `resources` to its names",
        WARNS,
        skips=False,
    ),
    Check(
        "podresources.sharing",
        "ids of the devices that the kubelet offers",
        "the device plugin shares GPUs by time-slicing: several pods hold one GPU, and its "
        "readings carry no pod's labels",
        "nothing, if that is meant: `podgpu_device_holder_info` names the pods; MIG instances "
        "can be told apart",
        NONE,
        skips=False,
    ),
    Check(
        "pods.server",
        "the API server, asked for one pod of this node",
        "it can't be reached, it doesn't accept the credentials (token expired), or it fails",
        "see that the address is right and a NetworkPolicy lets podgpu through; renew the token or "
        "the kubeconfig; see its log",
        BOTH,
        skips=False,
    ),
    Check(
        "pods.rbac",
        "each request that the source makes: list and watch of pods and of ResourceSlices, "
        "get of a ResourceClaim",
        "a verb is missing, which is named",
        "give the service account a ClusterRole with that verb",
        BOTH,
        skips=False,
    ),
    Check(
        "checkpoint.file",
        "the kubelet's checkpoint of device plugins",
        "it is absent, not mounted, not readable, or of an unknown form",
        "mount the folder `device-plugins` of the kubelet's root, and set `path` where that is "
        "another one",
        BOTH,
        skips=False,
    ),
    Check(
        "podlist.file",
        "podlist.json",
        "it is absent, malformed, from the future, or stale: its writer is gone, or a mount of the "
        "file shows an old one",
        "see that its writer runs; mount the folder instead of the file; mend the entries that are "
        "named",
        BOTH,
        skips=False,
    ),
    Check(
        "nri.socket",
        "the container runtime's NRI socket; nobody connects to it",
        "NRI is switched off in the runtime, nobody listens, its folder isn't mounted, or podgpu "
        "isn't root",
        "containerd 1.7: `disable = false` for NRI; CRI-O: `enable_nri = true`; mount "
        "`/var/run/nri`; run as root",
        FAILS,
    ),
    Check(
        "dcgm.page",
        "the page of dcgm-exporter, read once",
        "it can't be had, there is no metric of DCGM's on it, or it is podgpu's own",
        "see that dcgm-exporter runs on this node and that `url` or `path` is its page's",
        FAILS,
        skips=False,
    ),
    Check(
        "hostengine.library",
        "DCGM's client library",
        "it isn't here, or it is none of DCGM's",
        "add it to the image or mount it, and set `library`",
        FAILS,
    ),
    Check(
        "hostengine.address",
        "the host engine's address: a connection is made and closed",
        "nobody listens there",
        "start nv-hostengine on the node, or set `address`",
        FAILS,
        skips=False,
    ),
    Check(
        "kernel.log",
        "the kernel's log, by default `/dev/kmsg`: it is opened, and one record is read",
        "it isn't there or may not be opened: no process is known of an XID error",
        "mount `/dev/kmsg` (hostPath, type CharDevice); `privileged: true`, user 0, and CAP_SYSLOG "
        "where `kernel.dmesg_restrict` is 1",
        FAILS,
        skips=False,
    ),
    Check(
        "kernel.processes",
        "`proc`: whether it shows the processes of the host",
        "it shows a container's alone: nobody can tell whose process the log names",
        "set `hostPID: true` for podgpu's pod, or mount the host's /proc and set `proc`",
        WARNS,
        skips=False,
    ),
    Check(
        "replay.recording",
        "the recording's file",
        "it isn't there or is no recording",
        "give the path of a file that `podgpu record` made, or `builtin:demo`",
        FAILS,
        skips=False,
    ),
)
