"""How the podgpu that runs beside the doctor is, by its own word."""

import re
from functools import partial
from typing import Final

import msgspec

from pipeline.base.safe_text import line
from pipeline.component.findings import Finding, span
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.model import NS
from pipeline.status_page.problems import problems, summary
from pipeline.status_page.status_document import StatusDocument

_MAX_LISTED: Final = 4
_BEGINNING: Final = 120.0
"""Seconds in which a podgpu that was just started may wait for its sources."""

_REFUSED: Final = re.compile(
    rb"^podgpu_config_reload_last_successful(?:\{[^}\n]*\})? 0\b", re.MULTILINE
)
_NOT_IN_FORCE: Final = (
    "what was changed last, the file or its list of counters, was not taken over: it runs with "
    "what was there before"
)
_FIX: Final = "see the checks of these here, which look at the same, and podgpu's log"
_FILE_FIX: Final = "see podgpu's log for why, and podgpu check for the file"


async def check_status(subject: str, owner: PortOwner, ctx: DoctorContext) -> Finding:
    """Check `daemon.status`.

    Args:
        subject: where it answered.
        owner: what it answered.
        ctx: tells the time.
    """
    now_s = ctx.clock.now().wall_ns / NS
    return await in_thread(partial(check_daemon, f"{subject}/status", owner, now_s))


def check_daemon(subject: str, owner: PortOwner, now_s: float) -> Finding:
    """Check `daemon.status`; a page of megabytes takes a while.

    A changed file that was refused is told by podgpu's own gauge, which is 0 until one is taken
    over. Whether the file that stands there now is good the check `config` tells.

    Args:
        subject: for people.
        owner: what it answered.
        now_s: Unix time.
    """
    check = CHECKS["daemon.status"]
    if not owner.status:
        return check.skip(subject, "it isn't told, as behind a password")
    try:
        status = msgspec.json.decode(owner.status, type=StatusDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return check.skip(subject, "is of another version than this podgpu")
    wrong = problems(status)
    if wait := _waits(status, now_s):
        wrong.insert(0, wait)
    if _REFUSED.search(owner.metrics):
        wrong.append(_NOT_IN_FORCE)
    if not wrong:
        return check.ok(subject, line(f"well by its own word: {summary(status)}"))
    more = f"; and {len(wrong) - _MAX_LISTED} more" if len(wrong) > _MAX_LISTED else ""
    told = "; ".join(map(line, wrong[:_MAX_LISTED])) + more
    return check.warning(subject, told, _FILE_FIX if wrong == [_NOT_IN_FORCE] else _FIX)


def _waits(status: StatusDocument, now_s: float) -> str:
    if status.ready or status.started is None:
        return ""
    age = now_s - status.started.timestamp()
    what = status.waiting_for or "its sources"
    return f"is not ready, {span(age)} after its start: waits for {what}" * (age > _BEGINNING)
