"""Parses records of `/dev/kmsg`, and the lines with which the driver logs XID errors.

Records are described in the kernel's Documentation/ABI/testing/dev-kmsg. The driver's lines are
those of kernel_rc.c in NVIDIA's open kernel modules, and those that older drivers wrote:

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=7194, name=python, Contained: ...
    NVRM: Xid (PCI:0000:01:00): 31, pid=1122, Ch 00000010, ...
    NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
    NVRM: Xid (0000:03:00): 14, Channel 00000001
"""

import re
from dataclasses import dataclass
from typing import Final

from pipeline.base.safe_text import line

_PREFIX: Final = re.compile(rb"([0-9]{1,4}),([0-9]{1,20}),([0-9]{1,20}),[^;\n]{0,200};")
_KERNEL_PRIORITIES: Final = 8
"""Priorities below this are of facility 0, the kernel's. The kernel sets another facility, up to
255, for whatever programs write into the device."""

_XID_PREFIX: Final = b"NVRM: Xid ("
_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?(?: [^)]{0,60})?\): "
    r"([0-9]{1,5})(?:, (.*))?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_PROCESS: Final = re.compile(
    r"pid=(?:([0-9]{1,10})|'?<unknown>'?)(?:, name=(.*?))?(?:, |$)", re.ASCII | re.DOTALL
)
_UNKNOWN: Final = "<unknown>"
_LONGEST_NAME: Final = 64
_LARGEST_CODE: Final = 65535


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log.

    Attributes:
        number: number of the record, since the start of the machine.
        stamp_us: when it was written, by the kernel's clock, in microseconds.
        text: the line; empty if it is not a line of the kernel about an XID error.
    """

    number: int
    stamp_us: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID error that the driver logged.

    Attributes:
        pci_bus_id: PCI bus id of the GPU, such as `0000:3b:00.0`.
        code: code of the error.
        pid: pid of the named process in the initial pid namespace; None if no process is named.
        process: name of that process; empty if no name is known.
    """

    pci_bus_id: str
    code: int
    pid: int | None
    process: str


def record(data: bytes) -> Record | None:
    """Parse a record; None if it is malformed."""
    prefix = _PREFIX.match(data)
    if prefix is None:
        return None
    text = b""
    if int(prefix[1]) < _KERNEL_PRIORITIES and data.startswith(_XID_PREFIX, prefix.end()):
        # Properties of the record follow on further lines.
        text = data[prefix.end() :].partition(b"\n")[0]
    return Record(int(prefix[2]), int(prefix[3]), text)


def xid(text: bytes) -> Xid | None:
    """Parse a line of the driver; None if it is malformed."""
    found = _XID.fullmatch(text.decode(errors="replace"))
    if found is None or not 0 < int(found[2]) <= _LARGEST_CODE:
        return None
    pid, name = _process(found[3] or "")
    return Xid(f"{found[1].lower()}.0", int(found[2]), pid, name)


def _process(details: str) -> tuple[int | None, str]:
    found = _PROCESS.match(details)
    # The driver logs pid 0 for itself.
    if found is None or not int(found[1] or 0):
        return None, ""
    name = found[2] or ""
    return int(found[1]), "" if name == _UNKNOWN else line(name, _LONGEST_NAME)
