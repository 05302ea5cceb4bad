"""Whether podgpu can listen where it is to, or does so already."""

import asyncio
import errno
from functools import partial
from typing import Final

from config.schema import Config
from config.value_types import ListenAddress
from pipeline.component.check import Check
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.port_owner import PortOwner, certificate, identify
from pipeline.diagnostics.process_lookup import FileOwner, find_port_owner
from pipeline.host.listen_sockets import bind, reason
from podgpu.doctor.daemon_status import check_status
from podgpu.doctor.queue_rate import check_rates
from podgpu.doctor.web_config import identity_if_mutual_tls

_ALL: Final = {"0.0.0.0": "127.0.0.1", "::": "localhost"}  # noqa: S104 - looked for, not listened on
_TIMEOUT: Final = 10.0
"""Seconds for one address in all: who listens there may answer by the byte."""

_SLOW: Final = PortOwner(False, "somebody who takes too long to say who it is", is_silent=True)
_HUNG_FIX: Final = (
    "see its log (kubectl logs), and restart its pod if it stays so; before that, the log of the "
    "node's kernel (dmesg): a podgpu that is stopped, or waits for a disk, answers nothing"
)
_SILENT_FIX: Final = (
    "see who listens there (ss -ltnp on the node): restart it if it is a podgpu, which hangs then; "
)
_CONFLICT_FIX: Final = (
    "remove the other one from this node (a DaemonSet or Service of its own), or set another "
    "listen and scrape that"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `http.port` for each address, `daemon.status` and `queue.rate` where podgpu answers."""
    found = await asyncio.gather(*(_address(each, ctx) for each in addresses(ctx.config)))
    if not found:
        return [CHECKS["http.port"].skip("listen", "podgpu listens nowhere")]
    ports = [finding for finding, _ in found]
    # It is the same on each of its addresses; where it tells most, it is asked.
    answering = [(finding.subject, told) for finding, told in found if told is not None]
    answering.sort(key=lambda each: not each[1].status)
    for place, told in answering[:1]:
        ports.append(await check_status(place, told, ctx))
        ports += await in_thread(partial(check_rates, place, told, ctx.config))
    return ports


def addresses(config: Config) -> list[ListenAddress]:
    """Return the addresses that podgpu listens on, each once."""
    listens = [getattr(sink.options, "listen", None) for sink in config.sinks.values()]
    found = [each for each in (*listens, config.http.listen) if isinstance(each, ListenAddress)]
    return list(dict.fromkeys(found))


async def _address(address: ListenAddress, ctx: DoctorContext) -> tuple[Finding, PortOwner | None]:
    """Return the finding, and this node's podgpu where it answers there."""
    check = CHECKS["http.port"]
    try:
        # Given back before anybody could connect.
        (await bind(address)).close()
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return await _check_taken(address, ctx)
        mend = "set another listen, or give podgpu what it takes"
        saw = f"can't be listened on: {reason(error)}"
        return check.failure(str(address), saw, mend), None
    return check.ok(str(address), "free"), None


async def _check_taken(
    address: ListenAddress, ctx: DoctorContext
) -> tuple[Finding, PortOwner | None]:
    check, place = CHECKS["http.port"], str(address)
    host = _ALL.get(address.host, address.host or "localhost")
    holder = await in_thread(partial(find_port_owner, address.port, ctx.roots.proc))
    try:
        async with asyncio.timeout(min(_TIMEOUT, ctx.deadline / 2)):
            neighbour = await in_thread(partial(identify, host, address.port))
            if not neighbour.is_podgpu and (
                shown := await _by_certificate(host, address.port, ctx)
            ):
                neighbour = shown
    except TimeoutError:
        neighbour = _SLOW
    if neighbour == _UNIDENTIFIED:
        if holder is FileOwner.OURS:
            return check.ok(place, "podgpu listens there, and wants a client's certificate"), None
        return check.skip(place, neighbour.description), None
    if neighbour.is_silent:
        return _silent_finding(check, place, neighbour, holder), None
    if not neighbour.is_podgpu:
        return check.failure(
            place, f"taken: {neighbour.description} answers there", _CONFLICT_FIX
        ), None
    if neighbour.node and neighbour.node != ctx.node:
        saw = f"taken: {neighbour.description} answers there, and this node is {ctx.node}"
        return check.failure(place, saw, _CONFLICT_FIX), None
    if holder is FileOwner.OTHER:
        saw = f"{neighbour.description} answers there, and it is none of this container"
        mend = f"nothing, if this container is there to look at it alone; else {_CONFLICT_FIX}"
        return check.warning(place, saw, mend), neighbour
    return check.ok(place, f"{neighbour.description} answers there"), neighbour


def _silent_finding(check: Check, subject: str, owner: PortOwner, holder: FileOwner) -> Finding:
    """Return the finding of a port where somebody listens and gives no answer."""
    if holder is FileOwner.OURS:
        saw = "a podgpu of this container listens there, and does not answer"
        return check.failure(subject, saw, _HUNG_FIX)
    if holder is FileOwner.UNKNOWN:
        return check.failure(
            subject, f"taken: {owner.description} listens there", _SILENT_FIX + _CONFLICT_FIX
        )
    return check.failure(subject, f"taken: {owner.description} listens there", _CONFLICT_FIX)


_UNIDENTIFIED: Final = PortOwner(
    False, "whoever answers there wants a client's certificate, as podgpu does: can't be told"
)


async def _by_certificate(host: str, port: int, ctx: DoctorContext) -> PortOwner | None:
    """Know podgpu by its certificate, where nobody is told more without having one too."""
    own = await in_thread(partial(identity_if_mutual_tls, ctx.config))
    if own is None:
        return None
    theirs = await in_thread(partial(certificate, host, port))
    if theirs is None:
        return _UNIDENTIFIED
    return PortOwner(True, "podgpu, by its certificate,") if theirs == own.certificate else None
