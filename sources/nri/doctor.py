"""What `podgpu doctor` looks at for the nri source: the socket. Nobody connects to it.

The runtime takes plugins one at a time and waits for one that says nothing: a connection only to
look would hold up those that mean it.
"""

import os
import stat
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from sources.nri.options import Options

_ON: Final = (
    "switch NRI on and restart the runtime: containerd 1.7 has disable = false under "
    'plugins."io.containerd.nri.v1.nri", CRI-O 1.26 to 1.29 enable_nri = true under crio.nri; '
    "newer ones have it on"
)
_ACCEPTS: Final = 0x10000
"""__SO_ACCEPTCON."""

_HOST: Final = ("/run/systemd/", "/run/containerd/", "/run/k3s/", "/run/crio/", "/var/run/crio/")


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `nri.socket`."""
    return [await in_thread(partial(_look, options.socket, ctx.roots.proc))]


def _look(path: Path, proc: Path) -> Finding:
    check = CHECKS["nri.socket"]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.parent.is_dir():
            return check.failure(
                str(path), "the folder is here, and no socket in it: NRI is off in the runtime", _ON
            )
        saw = f"there is no folder {path.parent}: it is not mounted, or NRI is off in the runtime"
        return check.failure(str(path), saw, f"mount {path.parent} from the host; {_ON}")
    except OSError as error:
        return _closed(path, os.strerror(error.errno or 0).lower())
    if not stat.S_ISSOCK(mode):
        return check.failure(str(path), "is not a socket", "set socket to the runtime's")
    if not os.access(path, os.R_OK | os.W_OK):
        return _closed(path, "not readable and writable")
    match _listens(path, proc):
        case True:
            return check.ok(str(path), "somebody listens; nobody connected")
        case False:
            return check.failure(str(path), "nobody listens: the runtime has left it behind", _ON)
        case None:
            why = (
                "is a socket that may be connected to; whether somebody listens can't be told: "
                "the kernel shows it in the host's network namespace alone"
            )
            return check.skip(str(path), why)


def _listens(path: Path, proc: Path) -> bool | None:
    """Whether somebody listens, by the kernel's table; None where it is another namespace's.

    The path that is mounted here may be another one than the runtime has, so that the name counts.
    See proc_net(5): flags are the fourth word, the path the eighth.
    """
    try:
        table = (proc / "net/unix").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    rows = [row.split(None, 7) for row in table.splitlines()[1:]]
    bound = [row[7] for row in rows if len(row) == 8 and _accepts(row[3])]
    names = {path.name, path.resolve().name}
    if any(PurePath(each).name in names for each in bound):
        return True
    # Those who listen on the host alone: with them the table is the host's.
    return False if any(each.startswith(_HOST) for each in bound) else None


def _accepts(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _ACCEPTS)
    except ValueError:
        return False


def _closed(path: Path, saw: str) -> Finding:
    saw = f"{saw} for uid {os.geteuid()}"
    return CHECKS["nri.socket"].failure(str(path), saw, "run podgpu as root: the socket is root's")
