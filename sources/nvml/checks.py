"""The checks of the nvml source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, NONE, WARNS, Check, checks_by_id

CHECKS: Final = checks_by_id(
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
)
