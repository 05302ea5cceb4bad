"""The check of `podgpu doctor` for the source `nri`: whether a process listens on the socket.

The check does not connect to the socket: the runtime registers one plugin at a time and waits for
one that does not respond, so the check would delay real plugins.
"""

import os
import stat
from pathlib import Path, PurePath
from typing import Final

from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from sources.nri.options import Options

_CHECK: Final = Check("nri.socket", FAILS)

_ENABLE_NRI: Final = (
    "enable NRI and restart the runtime: in containerd 1.7 set disable = false under "
    'plugins."io.containerd.nri.v1.nri", in CRI-O 1.26 to 1.29 enable_nri = true under crio.nri; '
    "newer versions enable it by default"
)
_ACCEPTS: Final = 0x10000
"""__SO_ACCEPTCON, the kernel's flag of a socket that listens."""

_HOST_SOCKETS: Final = (
    "/run/systemd/",
    "/run/containerd/",
    "/run/k3s/",
    "/run/crio/",
    "/var/run/crio/",
)


def examine(options: Options, ctx: DoctorContext) -> Finding:
    """Check `nri.socket`."""
    path = options.socket
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.parent.is_dir():
            return _CHECK.failure(
                str(path),
                "the folder exists without a socket: the runtime has NRI disabled",
                _ENABLE_NRI,
            )
        problem = f"no folder {path.parent}: it is not mounted, or NRI is disabled in the runtime"
        return _CHECK.failure(
            str(path), problem, f"mount {path.parent} from the host; {_ENABLE_NRI}"
        )
    except OSError as error:
        return _no_access(path, os.strerror(error.errno or 0).lower())
    if not stat.S_ISSOCK(mode):
        return _CHECK.failure(str(path), "is not a socket", "set socket to the runtime's socket")
    if not os.access(path, os.R_OK | os.W_OK):
        return _no_access(path, "is not readable and writable")
    listening = _is_listening(path, ctx.roots.proc)
    if listening:
        return _CHECK.ok(str(path), "a process listens on it; podgpu did not connect")
    if listening is not None:
        problem = "no process listens: the file is left from an earlier run of the runtime"
        return _CHECK.failure(str(path), problem, _ENABLE_NRI)
    reason = (
        "is a socket with the right permissions, but it is unknown whether a process listens: the "
        "kernel shows that only in the host's network namespace"
    )
    return _CHECK.skip(str(path), reason)


def _is_listening(path: Path, proc: Path) -> bool | None:
    """Return whether a process listens on the socket; None if this is unknown.

    It is unknown if /proc shows the sockets of another network namespace than the host's. The path
    here may differ from the runtime's, so only the file name is compared. See proc_net(5): the
    flags are in the fourth column, the path is in the eighth.
    """
    try:
        table = (proc / "net/unix").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    rows = [row.split(None, 7) for row in table.splitlines()[1:]]
    bound = [row[7] for row in rows if len(row) == 8 and _is_listener(row[3])]
    names = {path.name, path.resolve().name}
    if any(PurePath(each).name in names for each in bound):
        return True
    # Sockets in these folders exist only on the host. If they are listed, the table is the host's.
    return False if any(each.startswith(_HOST_SOCKETS) for each in bound) else None


def _is_listener(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _ACCEPTS)
    except ValueError:
        return False


def _no_access(path: Path, problem: str) -> Finding:
    problem = f"{problem} for uid {os.geteuid()}"
    return _CHECK.failure(str(path), problem, "run podgpu as root: root owns the socket")
