"""Run a program with the restrictions of a systemd unit: `python confined.py UNIT PROGRAM ...`.

Sets what systemd would set with seccomp and prctl: system calls, socket families, and memory that
is writable and executable. libseccomp and systemd-analyze have the lists of system calls.
"""

import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_EQUAL = 4
_MDWE, _REFUSE_EXEC_GAIN = 65, 1  # linux/prctl.h
_NEW = {"socket"}  # rules by family


class _Compare(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def calls(names: list[str]) -> set[str]:
    """Return the system calls of names and groups such as @system-service."""
    found: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            found.add(name)
            continue
        command = ["systemd-analyze", "--no-pager", "syscall-filter", name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = [line.strip() for line in text.splitlines()[1:]]
        found |= calls([line for line in lines if line and not line.startswith("#")])
    return found


def allowed(filters: list[str]) -> set[str]:
    """Return the system calls that the lines of SystemCallFilter allow."""
    found: set[str] = set()
    for line in filters:
        if line.startswith("~"):
            found -= calls(line[1:].split())
        else:
            found |= calls(line.split())
    return found


def confine(service: dict[str, list[str]]) -> None:
    """Apply the restrictions to this process; those that it starts inherit them."""
    library: Any = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_EPERM)))
    allow = ctypes.c_uint32(_ALLOW)
    for name in sorted(allowed(service["SystemCallFilter"]) - _NEW):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # exists on this architecture
            _checked(library.seccomp_rule_add(context, allow, number, 0), name)
    number = library.seccomp_syscall_resolve_name(b"socket")
    for family in service["RestrictAddressFamilies"][0].split():
        rule = _Compare(0, _EQUAL, getattr(socket, family).value, 0)
        added = library.seccomp_rule_add_array(context, allow, number, 1, ctypes.byref(rule))
        _checked(added, family)
    if service.get("MemoryDenyWriteExecute") == ["yes"]:
        libc = ctypes.CDLL(None)
        _checked(libc.prctl(_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0), "MemoryDenyWriteExecute")
    _checked(library.seccomp_load(context), "seccomp")


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(-result, what)


def settings(unit: str) -> dict[str, list[str]]:
    """Return the lines of a unit's section Service by name."""
    found: dict[str, list[str]] = {}
    for line in Path(unit).read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


if __name__ == "__main__":
    confine(settings(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
