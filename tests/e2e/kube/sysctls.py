"""Kernel settings that a kubelet changes for the whole machine and never restores."""

import json
from pathlib import Path

from tests.e2e.kube import folders

_ROOT = Path("/proc/sys")
_SET = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)

_BEFORE = folders.STATE / "sysctls.json"
"""A file, so that the next run can restore them after a killed run."""


def remember() -> None:
    """Store the settings before a kubelet runs."""
    found = {name: _ROOT / name for name in _SET}
    _BEFORE.write_text(
        json.dumps({name: file.read_text() for name, file in found.items() if file.exists()})
    )


def restore() -> None:
    """Restore the stored settings, if there are any."""
    if not _BEFORE.exists():
        return
    for name, value in json.loads(_BEFORE.read_text()).items():
        file = _ROOT / name
        if file.read_text() != value:
            file.write_text(value)
