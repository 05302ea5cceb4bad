"""Why NVML cannot be opened, and how to fix it."""

from typing import Final

from sources.nvml import codes

RELOADED: Final = (
    "restart podgpu's pod; to prevent this permanently, switch the runtime to CDI, or the "
    "container toolkit to a release that creates links in /dev/char (nvidia-ctk system "
    "create-dev-char-symlinks), so that a daemon-reload of systemd does not remove the devices"
)

OPENING: Final = {
    codes.LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is missing: in Kubernetes, run podgpu with the runtime class of "
        "NVIDIA's container toolkit (runtimeClassName: nvidia), or make that the default runtime, "
        "and include utility in NVIDIA_DRIVER_CAPABILITIES; otherwise install the NVIDIA driver"
    ),
    codes.DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded: load it on the node (modprobe nvidia), and check "
        "that /dev/nvidiactl exists in the container"
    ),
    codes.LIB_RM_VERSION_MISMATCH: (
        "the NVML library and the loaded kernel driver have different versions, as after an "
        "upgrade: reload the driver or reboot, then restart the container"
    ),
    codes.NO_PERMISSION: (
        "no permission to open the NVIDIA devices: the process needs read and write access to "
        "/dev/nvidiactl and /dev/nvidia0, 1, ..."
    ),
    codes.UNKNOWN: (
        "podgpu's container lost access to the devices, or the driver is broken: "
        f"{RELOADED}; otherwise see the kernel log (dmesg) for NVRM messages"
    ),
}
