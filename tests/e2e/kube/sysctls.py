"""Settings of the kernel that a node makes for the whole machine, and never takes back."""

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
"""A file, so that the run after one that was killed knows them too."""


def remember() -> None:
    """Write down what they are, before a kubelet runs."""
    found = {name: _ROOT / name for name in _SET}
    _BEFORE.write_text(
        json.dumps({name: file.read_text() for name, file in found.items() if file.exists()})
    )


def restore() -> None:
    """Set them to what was written down, if anything was."""
    if not _BEFORE.exists():
        return
    for name, value in json.loads(_BEFORE.read_text()).items():
        file = _ROOT / name
        if file.read_text() != value:
            file.write_text(value)
