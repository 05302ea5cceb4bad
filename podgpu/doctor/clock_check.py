"""Whether the clock is right."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import Finding
from pipeline.diagnostics import clock_sync
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread

_SECONDS: Final = 8.0
"""For one server, whose own check tells if it takes longer."""
_OFF: Final = 5.0
_FAR_OFF: Final = 60.0
"""Seconds; where tokens and certificates begin to be refused."""
_KERNEL: Final = "the kernel's clock (adjtimex)"
_FIX: Final = (
    "run chrony or systemd-timesyncd on the node, and on the API server's; "
    "see chronyc tracking or timedatectl"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `clock`."""
    check = CHECKS["clock"]
    kernel = ctx.synchronised()
    asking = (_in_time(ctx, kubeconfig) for kubeconfig in _servers(ctx))
    told = [finding for finding in await asyncio.gather(*asking) if finding is not None]
    match kernel:
        case True:
            told.append(check.ok(_KERNEL, "synchronised"))
        case False:
            saw = "not synchronised: nobody keeps it right"
            told.append(check.warning(_KERNEL, saw, _FIX))
        case None if not told:
            told.append(check.skip(_KERNEL, "a container may not ask, and there is no server"))
        case None:
            pass
    return told


def _servers(ctx: DoctorContext) -> list[Path | None]:
    components = (*ctx.config.sources.values(), *ctx.config.sinks.values())
    found = [each.options for each in components if hasattr(each.options, "kubeconfig")]
    return list(dict.fromkeys(options.kubeconfig for options in found))


async def _in_time(ctx: DoctorContext, kubeconfig: Path | None) -> Finding | None:
    """Compare; None for a server that doesn't answer, or credentials that aren't read, in time."""
    try:
        async with asyncio.timeout(min(_SECONDS, ctx.deadline / 2)):
            return await _against_the_server(ctx, kubeconfig)
    except TimeoutError:
        return None


async def _against_the_server(ctx: DoctorContext, kubeconfig: Path | None) -> Finding | None:
    """Compare; None where there is no answer, which is for the check of the server to say."""
    check = CHECKS["clock"]
    try:
        plugins = ctx.allowed.everything
        address = await in_thread(partial(clock_sync.server_address, kubeconfig, plugins=plugins))
    except TransientError:
        return None
    ahead = await in_thread(partial(clock_sync.clock_offset_from, address, ctx.clock))
    if ahead is None:
        return None
    place = f"the time on an answer of {address}"
    if abs(ahead) <= _OFF:
        return check.ok(place, f"within {_OFF:g} s of this machine's")
    saw = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} it"
    return (check.failure if abs(ahead) > _FAR_OFF else check.warning)(place, saw, _FIX)
