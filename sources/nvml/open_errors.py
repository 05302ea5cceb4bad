"""Why NVML can't be opened, and what mends it."""

from typing import Final

from sources.nvml import codes

RELOADED: Final = (
    "restart podgpu's pod; for good, switch the runtime to CDI or the container toolkit to a "
    "release that makes links in /dev/char (nvidia-ctk system create-dev-char-symlinks), "
    "so that a daemon-reload of systemd doesn't take the devices away"
)

OPENING: Final = {
    codes.LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is not there: in Kubernetes run podgpu with the runtime class of "
        "NVIDIA's container toolkit (runtimeClassName: nvidia), or make that the default runtime, "
        "and see that NVIDIA_DRIVER_CAPABILITIES includes utility; else install the NVIDIA driver"
    ),
    codes.DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded: load it on the node (modprobe nvidia) and see "
        "that /dev/nvidiactl exists in the container"
    ),
    codes.LIB_RM_VERSION_MISMATCH: (
        "the NVML library and the loaded kernel driver are of different versions, as after an "
        "upgrade: reload the driver or reboot, then restart the container"
    ),
    codes.NO_PERMISSION: (
        "no permission to open the NVIDIA devices: the process needs read and write access to "
        "/dev/nvidiactl and /dev/nvidia0, 1, ..."
    ),
    codes.UNKNOWN: (
        f"podgpu's container lost access to the devices, or the driver is broken: {RELOADED}; else "
        "see the kernel log (dmesg) for NVRM messages"
    ),
}
