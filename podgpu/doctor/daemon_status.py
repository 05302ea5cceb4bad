"""Check `daemon.status`: the problems that a running podgpu reports about itself."""

import re
from typing import Final

import msgspec

from pipeline.base.safe_text import line
from pipeline.component.findings import WARNS, Check, Finding, span
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.status_document import StatusDocument

_MAX_LISTED: Final = 4
_STARTUP_GRACE: Final = 120.0
"""Seconds after its start in which a podgpu may wait for its sources."""

_RELOAD_REFUSED: Final = re.compile(
    rb"^podgpu_config_reload_last_successful(?:\{[^}\n]*\})? 0\b", re.MULTILINE
)
_NOT_IN_FORCE: Final = (
    "the last change of the file or of its list of counters was not loaded: podgpu runs with the "
    "previous configuration"
)
_FIX: Final = "see the checks of the same components here, and podgpu's log"
_FILE_FIX: Final = "see podgpu's log for the reason, and run podgpu check on the file"


def check_daemon(subject: str, owner: PortOwner, now_s: float) -> Finding:
    """Run the check `daemon.status`; a page of several megabytes takes a while.

    podgpu's gauge `podgpu_config_reload_last_successful` shows that a changed file was refused: it
    is 0 until podgpu loads one. The check `config` reports whether the present file is valid.

    Args:
        subject: the address, for people.
        owner: the podgpu that responds there.
        now_s: Unix time.
    """
    check = Check("daemon.status", WARNS)
    if not owner.status:
        return check.skip(subject, "not available, for example because a password is required")
    try:
        status = msgspec.json.decode(owner.status, type=StatusDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return check.skip(subject, "was written by another version of podgpu")
    wrong = problems(status)
    if wait := _waits(status, now_s):
        wrong.insert(0, wait)
    if _RELOAD_REFUSED.search(owner.metrics):
        wrong.append(_NOT_IN_FORCE)
    if not wrong:
        return check.ok(subject, line(f"podgpu reports no problem: {summary(status)}"))
    more = f"; and {len(wrong) - _MAX_LISTED} more" if len(wrong) > _MAX_LISTED else ""
    observed = "; ".join(map(line, wrong[:_MAX_LISTED])) + more
    return check.warning(subject, observed, _FILE_FIX if wrong == [_NOT_IN_FORCE] else _FIX)


def _waits(status: StatusDocument, now_s: float) -> str:
    if status.ready or status.started is None:
        return ""
    age = now_s - status.started.timestamp()
    if age <= _STARTUP_GRACE:
        return ""
    waited_for = status.waiting_for or "its sources"
    return f"is not ready {span(age)} after its start: waits for {waited_for}"
