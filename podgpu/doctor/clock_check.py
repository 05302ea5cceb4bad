"""Check `clock`: whether the node's clock is correct."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics import clock_sync
from pipeline.diagnostics.context import DoctorContext, in_thread

_CHECK: Final = Check("clock", BOTH)

_TIMEOUT: Final = 8.0
"""Time limit for one server. If a server is slower, its own check reports that."""
_OFF: Final = 5.0
_FAR_OFF: Final = 60.0
"""Seconds from which servers refuse tokens and certificates."""
_KERNEL: Final = "the kernel's clock (adjtimex)"
_FIX: Final = (
    "run chrony or systemd-timesyncd on this node and on that of the API server; "
    "see chronyc tracking or timedatectl"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Run the check `clock`."""
    kernel = ctx.synchronised()
    comparisons = (_compare(ctx, kubeconfig) for kubeconfig in _servers(ctx))
    findings = [each for each in await asyncio.gather(*comparisons) if each is not None]
    match kernel:
        case True:
            findings.append(_CHECK.ok(_KERNEL, "synchronised"))
        case False:
            observed = "not synchronised: no time service keeps it correct"
            findings.append(_CHECK.warning(_KERNEL, observed, _FIX))
        case None if not findings:
            findings.append(
                _CHECK.skip(
                    _KERNEL, "unknown: a container may not query it, and no server responds"
                )
            )
        case None:
            pass
    return findings


def _servers(ctx: DoctorContext) -> list[Path | None]:
    components = (*ctx.config.sources.values(), *ctx.config.sinks.values())
    found = [each.options for each in components if hasattr(each.options, "kubeconfig")]
    return list(dict.fromkeys(options.kubeconfig for options in found))


async def _compare(ctx: DoctorContext, kubeconfig: Path | None) -> Finding | None:
    """Compare the clocks; return None if the server gives no time: its own check reports that."""
    plugins = ctx.allowed.everything
    try:
        async with asyncio.timeout(min(_TIMEOUT, ctx.deadline / 2)):
            address = await in_thread(
                partial(clock_sync.server_address, kubeconfig, plugins=plugins)
            )
            ahead = await in_thread(partial(clock_sync.clock_offset_from, address, ctx.clock))
    except (TransientError, TimeoutError):
        return None
    if ahead is None:
        return None
    place = f"the time in a response of {address}"
    if abs(ahead) <= _OFF:
        return _CHECK.ok(place, f"within {_OFF:g} s of this machine's clock")
    order = "ahead of" if ahead > 0 else "behind"
    observed = f"this machine's clock is {abs(ahead):.0f} s {order} it"
    return (_CHECK.failure if abs(ahead) > _FAR_OFF else _CHECK.warning)(place, observed, _FIX)
