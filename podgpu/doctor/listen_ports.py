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
from pipeline.diagnostics.port_owner import Neighbour, ask, certificate
from pipeline.diagnostics.process_lookup import Holder, who_listens
from pipeline.host.listen_sockets import bind, reason
from podgpu.doctor.daemon_status import examined
from podgpu.doctor.queue_rate import look
from podgpu.doctor.web_config import wants_certificates

_ALL: Final = {"0.0.0.0": "127.0.0.1", "::": "localhost"}  # noqa: S104 - looked for, not listened on
_PATIENCE: Final = 10.0
"""Seconds for one address in all: who listens there may answer by the byte."""

_SLOW: Final = Neighbour(False, "somebody who takes too long to say who it is", mute=True)
_HANGS: Final = (
    "see its log (kubectl logs), and restart its pod if it stays so; before that, the log of the "
    "node's kernel (dmesg): a podgpu that is stopped, or waits for a disk, answers nothing"
)
_MAYBE: Final = (
    "see who listens there (ss -ltnp on the node): restart it if it is a podgpu, which hangs then; "
)
_APART: Final = (
    "remove the other one from this node (a DaemonSet or Service of its own), or set another "
    "listen and scrape that"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `http.port` for each address, `daemon.status` and `queue.rate` where podgpu answers."""
    found = await asyncio.gather(*(_address(each, ctx) for each in addresses(ctx.config)))
    if not found:
        return [CHECKS["http.port"].skipped("listen", "podgpu listens nowhere")]
    ports = [finding for finding, _ in found]
    # It is the same on each of its addresses; where it tells most, it is asked.
    answering = [(finding.looked_at, told) for finding, told in found if told is not None]
    answering.sort(key=lambda each: not each[1].status)
    for place, told in answering[:1]:
        ports.append(await examined(place, told, ctx))
        ports += await in_thread(partial(look, place, told, ctx.config))
    return ports


def addresses(config: Config) -> list[ListenAddress]:
    """Return the addresses that podgpu listens on, each once."""
    listens = [getattr(sink.options, "listen", None) for sink in config.sinks.values()]
    found = [each for each in (*listens, config.http.listen) if isinstance(each, ListenAddress)]
    return list(dict.fromkeys(found))


async def _address(address: ListenAddress, ctx: DoctorContext) -> tuple[Finding, Neighbour | None]:
    """Return the finding, and this node's podgpu where it answers there."""
    check = CHECKS["http.port"]
    try:
        # Given back before anybody could connect.
        (await bind(address)).close()
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return await _taken(address, ctx)
        mend = "set another listen, or give podgpu what it takes"
        saw = f"can't be listened on: {reason(error)}"
        return check.failure(str(address), saw, mend), None
    return check.ok(str(address), "free"), None


async def _taken(address: ListenAddress, ctx: DoctorContext) -> tuple[Finding, Neighbour | None]:
    check, place = CHECKS["http.port"], str(address)
    host = _ALL.get(address.host, address.host or "localhost")
    holder = await in_thread(partial(who_listens, address.port, ctx.roots.proc))
    try:
        async with asyncio.timeout(min(_PATIENCE, ctx.deadline / 2)):
            neighbour = await in_thread(partial(ask, host, address.port))
            if not neighbour.podgpu and (shown := await _by_certificate(host, address.port, ctx)):
                neighbour = shown
    except TimeoutError:
        neighbour = _SLOW
    if neighbour == _UNTOLD:
        if holder is Holder.OURS:
            return check.ok(place, "podgpu listens there, and wants a client's certificate"), None
        return check.skipped(place, neighbour.who), None
    if neighbour.mute:
        return _mute(check, place, neighbour, holder), None
    if not neighbour.podgpu:
        return check.failure(place, f"taken: {neighbour.who} answers there", _APART), None
    if neighbour.node and neighbour.node != ctx.node:
        saw = f"taken: {neighbour.who} answers there, and this node is {ctx.node}"
        return check.failure(place, saw, _APART), None
    if holder is Holder.OTHER:
        saw = f"{neighbour.who} answers there, and it is none of this container"
        mend = f"nothing, if this container is there to look at it alone; else {_APART}"
        return check.warning(place, saw, mend), neighbour
    return check.ok(place, f"{neighbour.who} answers there"), neighbour


def _mute(check: Check, place: str, neighbour: Neighbour, holder: Holder) -> Finding:
    """Return the finding of a port where somebody listens and gives no answer."""
    if holder is Holder.OURS:
        saw = "a podgpu of this container listens there, and does not answer"
        return check.failure(place, saw, _HANGS)
    if holder is Holder.UNKNOWN:
        return check.failure(place, f"taken: {neighbour.who} listens there", _MAYBE + _APART)
    return check.failure(place, f"taken: {neighbour.who} listens there", _APART)


_UNTOLD: Final = Neighbour(
    False, "whoever answers there wants a client's certificate, as podgpu does: can't be told"
)


async def _by_certificate(host: str, port: int, ctx: DoctorContext) -> Neighbour | None:
    """Know podgpu by its certificate, where nobody is told more without having one too."""
    own = await in_thread(partial(wants_certificates, ctx.config))
    if own is None:
        return None
    theirs = await in_thread(partial(certificate, host, port))
    if theirs is None:
        return _UNTOLD
    return Neighbour(True, "podgpu, by its certificate,") if theirs == own.certificate else None
