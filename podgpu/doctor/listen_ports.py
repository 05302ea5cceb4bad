"""Check `http.port`: whether podgpu can listen on its addresses, or listens there already.

If podgpu listens already, check `daemon.status`: the problems that the running podgpu reports.
"""

import asyncio
import errno
import re
from functools import partial
from typing import Final

import msgspec

from config.schema import Config
from config.value_types import ListenAddress
from pipeline.base.safe_text import line
from pipeline.component.findings import BOTH, WARNS, Check, Finding, span
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.port_owner import PortOwner, certificate, identify
from pipeline.diagnostics.process_lookup import FileOwner, find_port_owner
from pipeline.host.listen_sockets import bind, reason
from pipeline.model import NS
from pipeline.status_page.display_text import summary
from pipeline.status_page.problem_text import affected_text, listed
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.use_format import ProblemStatus
from podgpu.doctor.delivery_queues import check_rates
from podgpu.doctor.web_config import identity_if_mutual_tls

_CHECK: Final = Check("http.port", BOTH)

_ALL: Final = {"0.0.0.0": "127.0.0.1", "::": "localhost"}  # noqa: S104 - a key, not listened on
_TIMEOUT: Final = 10.0
"""Time limit in seconds for one address: a server may send its response byte by byte."""

_SLOW: Final = PortOwner(False, "a server that takes too long to respond", is_silent=True)
_HUNG_FIX: Final = (
    "read its log (kubectl logs) and the node's kernel log (dmesg), since a podgpu that is stopped "
    "or waits for a disk does not respond; if it stays so, restart its pod"
)
_SILENT_FIX: Final = (
    "find out what listens there (ss -ltnp on the node): if it is podgpu, it hangs: restart it; "
)
_CONFLICT_FIX: Final = (
    "remove the other one from this node (another DaemonSet or Service), or set another listen "
    "address and scrape that"
)

_MAX_LISTED: Final = 8
_LONGEST: Final = 1000
"""Maximum number of characters of a problem: longer than those of the status document."""

_STARTUP_GRACE: Final = 120.0
"""Seconds after its start for which podgpu may wait for its sources, without a warning."""

_RELOAD_REFUSED: Final = re.compile(
    rb"^podgpu_config_reload_last_successful(?:\{[^}\n]*\})? 0\b", re.MULTILINE
)
_NOT_IN_FORCE: Final = (
    "the last change of the file or of its list of counters was not loaded: podgpu runs with the "
    "previous configuration"
)
_STATUS_FIX: Final = "see the checks of the same component here, and podgpu's log"
_SEE_OTHERS: Final = "see the other problems of this device"
_FILE_FIX: Final = "see podgpu's log for the reason, and run podgpu check on the file"


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Run `http.port` for each address, and `daemon.status` and `queue.rate` if podgpu responds."""
    found = await asyncio.gather(*(_address(each, ctx) for each in addresses(ctx.config)))
    if not found:
        return [_CHECK.skip("listen", "no listen address is configured")]
    ports = [finding for finding, _ in found]
    # podgpu's status is the same at each address. Use one that gives it without a password.
    responding = [(finding.subject, owner) for finding, owner in found if owner is not None]
    responding.sort(key=lambda each: not each[1].status)
    for place, owner in responding[:1]:
        now_s = ctx.clock.now().wall_ns / NS
        # A page of several megabytes takes a while.
        ports += await in_thread(partial(check_daemon, f"{place}/status", owner, now_s))
        ports += await in_thread(partial(check_rates, place, owner, ctx.config))
    return ports


def addresses(config: Config) -> list[ListenAddress]:
    """Return the addresses that podgpu listens on itself, without duplicates."""
    listens = [getattr(sink.options, "listen", None) for sink in config.sinks.values()]
    found = [each for each in (*listens, config.http.listen) if isinstance(each, ListenAddress)]
    return [each for each in dict.fromkeys(found) if not each.systemd]


async def _address(address: ListenAddress, ctx: DoctorContext) -> tuple[Finding, PortOwner | None]:
    """Return the finding, and the podgpu of this node if it responds at the address."""
    try:
        # Closed before a client can connect.
        (await bind(address)).close()
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return await _check_taken(address, ctx)
        fix = "set another listen address, or grant podgpu the required capability"
        observed = f"podgpu cannot listen here: {reason(error)}"
        return _CHECK.failure(str(address), observed, fix), None
    return _CHECK.ok(str(address), "free"), None


async def _check_taken(
    address: ListenAddress, ctx: DoctorContext
) -> tuple[Finding, PortOwner | None]:
    place = str(address)
    host = _ALL.get(address.host, address.host or "localhost")
    process = await in_thread(partial(find_port_owner, address.port, ctx.roots.proc))
    try:
        async with asyncio.timeout(min(_TIMEOUT, ctx.deadline / 2)):
            owner = await in_thread(partial(identify, host, address.port))
            if not owner.is_podgpu and (shown := await _by_certificate(host, address.port, ctx)):
                owner = shown
    except TimeoutError:
        owner = _SLOW
    if owner == _UNIDENTIFIED:
        if process is FileOwner.OURS:
            return _CHECK.ok(place, "podgpu listens there, and requires a client certificate"), None
        return _CHECK.skip(place, owner.description), None
    if owner.is_silent and process is FileOwner.OURS:
        observed = "a podgpu of this container listens there, and does not respond"
        return _CHECK.failure(place, observed, _HUNG_FIX), None
    if not owner.is_podgpu:
        may_hang = owner.is_silent and process is FileOwner.UNKNOWN
        fix = _SILENT_FIX + _CONFLICT_FIX if may_hang else _CONFLICT_FIX
        return _CHECK.failure(place, f"in use: {owner.description} listens there", fix), None
    if owner.node and owner.node != ctx.node:
        observed = f"in use: {owner.description} listens there, but this node is {ctx.node}"
        return _CHECK.failure(place, observed, _CONFLICT_FIX), None
    if process is FileOwner.OTHER:
        observed = f"{owner.description} listens there, and its process is not in this container"
        fix = f"nothing, if this container only runs podgpu doctor; else {_CONFLICT_FIX}"
        return _CHECK.warning(place, observed, fix), owner
    return _CHECK.ok(place, f"{owner.description} listens there"), owner


_UNIDENTIFIED: Final = PortOwner(
    False, "a server requires a client certificate, as podgpu does: it cannot be identified"
)


async def _by_certificate(host: str, port: int, ctx: DoctorContext) -> PortOwner | None:
    """Identify a server by its certificate if podgpu is configured to require client certificates.

    Return None if it is another server, or if podgpu requires no client certificates.
    """
    own = await in_thread(partial(identity_if_mutual_tls, ctx.config))
    if own is None:
        return None
    theirs = await in_thread(partial(certificate, host, port))
    if theirs is None:
        return _UNIDENTIFIED
    return PortOwner(True, "podgpu, by its certificate,") if theirs == own.certificate else None


def check_daemon(subject: str, owner: PortOwner, now_s: float) -> list[Finding]:
    """Return a finding for each problem, the most severe first, or one that there is none.

    Run the check `daemon.status`. Blocking: a page of several megabytes takes a while.

    podgpu's gauge `podgpu_config_reload_last_successful` is 0 if the last change of the file was
    refused. The check `config` reports whether the present file is valid.

    Args:
        subject: address of the status document, for people.
        owner: the podgpu that responds at this address.
        now_s: the present time in seconds of Unix time.
    """
    check = Check("daemon.status", WARNS)
    if not owner.status:
        return [check.skip(subject, "not available, for example because a password is required")]
    try:
        status = msgspec.json.decode(owner.status, type=StatusDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [check.skip(subject, "was written by another version of podgpu")]
    wrong = [_said(each) for each in listed(status)]
    if wait := _waits(status, now_s):
        wrong.insert(0, (wait, _STATUS_FIX))
    if _RELOAD_REFUSED.search(owner.metrics):
        wrong.insert(0, (_NOT_IN_FORCE, _FILE_FIX))
    notes = f". {' '.join(map(line, status.notes))}" if status.notes else ""
    if not wrong:
        ok = line(f"podgpu reports no problem: {summary(status)}") + notes
        return [check.ok(subject, ok)]
    count = max(len(wrong) - _MAX_LISTED, 0) + status.problems_left_out
    if count:
        text = f"{count} more problem{'s' if count > 1 else ''}"
        wrong[_MAX_LISTED:] = [(text, "see podgpu top or the page of this podgpu")]
    last, fix = wrong[-1]
    wrong[-1] = last + notes, fix
    return [check.warning(subject, text, fix) for text, fix in wrong]


def _said(problem: ProblemStatus) -> tuple[str, str]:
    """Return a problem with its severity, and how to fix it."""
    text = line(f"{problem.severity}: {problem.text}", _LONGEST)
    affected = affected_text(problem)
    fix = problem.advice or (_SEE_OTHERS if problem.device else _STATUS_FIX)
    return f"{text}{f'; {line(affected, _LONGEST)}' if affected else ''}", fix


def _waits(status: StatusDocument, now_s: float) -> str:
    if status.ready or status.started is None:
        return ""
    age = now_s - status.started.timestamp()
    if age <= _STARTUP_GRACE:
        return ""
    waited_for = status.waiting_for or "its sources"
    return f"is not ready {span(age)} after its start: waits for {waited_for}"
