"""The checks of the kernel source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, WARNS, Check, checks_by_id

CHECKS: Final = checks_by_id(
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
)
