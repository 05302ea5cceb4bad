"""The checks of the podresources source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, NONE, WARNS, Check, checks_by_id

CHECKS: Final = checks_by_id(
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
)
