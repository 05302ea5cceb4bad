"""Understands the records of `/dev/kmsg`, and the lines in which the driver tells of XID errors.

The records are described in the kernel's Documentation/ABI/testing/dev-kmsg; the driver's lines in
kernel_rc.c of NVIDIA's open kernel modules, and in what older drivers are known to have written:

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
_KERNELS_OWN: Final = 8
"""Priorities below this are of facility 0. Whatever is written into the device from outside the
kernel, by whomever, has another facility, up to 255: the kernel sees to that."""

_BEGINNING: Final = b"NVRM: Xid ("
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
        number: of the record, since the machine's start.
        stamp_us: when it was written, by a clock of the kernel's, in microseconds.
        text: what was written; empty where it isn't the kernel's own word on an XID error.
    """

    number: int
    stamp_us: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID error, as the driver has logged it.

    Attributes:
        pci_bus_id: of the GPU, such as `0000:3b:00.0`.
        code: of the error.
        pid: of the process that it names, in the first pid namespace; None where it names none.
        process: that process's name; empty where it names none.
    """

    pci_bus_id: str
    code: int
    pid: int | None
    process: str


def record(data: bytes) -> Record | None:
    """Read a record; None if it is none."""
    head = _PREFIX.match(data)
    if head is None:
        return None
    text = b""
    if int(head[1]) < _KERNELS_OWN and data.startswith(_BEGINNING, head.end()):
        # What follows on lines of their own are properties of the record.
        text = data[head.end() :].partition(b"\n")[0]
    return Record(int(head[2]), int(head[3]), text)


def xid(text: bytes) -> Xid | None:
    """Read what the driver has logged; None where it tells of no XID error."""
    found = _XID.fullmatch(text.decode(errors="replace"))
    if found is None or not 0 < int(found[2]) <= _LARGEST_CODE:
        return None
    pid, name = _process(found[3] or "")
    return Xid(f"{found[1].lower()}.0", int(found[2]), pid, name)


def _process(rest: str) -> tuple[int | None, str]:
    found = _PROCESS.match(rest)
    # The driver itself has the number 0 there.
    if found is None or not int(found[1] or 0):
        return None, ""
    name = found[2] or ""
    return int(found[1]), "" if name == _UNKNOWN else line(name, _LONGEST_NAME)
