"""Check `clock`: whether the node's clock is correct."""

import asyncio
import http.client
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.clock import Clock
from pipeline.base.errors import TransientError
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.port_owner import unverified
from pipeline.model import NS

_CHECK: Final = Check("clock", BOTH)

_TIMEOUT: Final = 8.0
"""Time limit in seconds for one server. If a server is slower, the server's own check fails."""
_RESPONSE_TIMEOUT: Final = 5.0
_OFF: Final = 5.0
_FAR_OFF: Final = 60.0
"""Difference in seconds from which servers refuse tokens and certificates."""
_KERNEL: Final = "the kernel's clock (adjtimex)"
_FIX: Final = (
    "run chrony or systemd-timesyncd on this node and on the API server's machine; "
    "see chronyc tracking or timedatectl"
)


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Run the check `clock`: compare with API servers, and query the kernel."""
    kernel = ctx.synchronised()
    comparisons = (_compare(ctx, kubeconfig) for kubeconfig in _servers(ctx))
    findings = [each for each in await asyncio.gather(*comparisons) if each is not None]
    if kernel:
        findings.append(_CHECK.ok(_KERNEL, "synchronised"))
    elif kernel is not None:
        observed = "not synchronised: no time service keeps it correct"
        findings.append(_CHECK.warning(_KERNEL, observed, _FIX))
    elif not findings:
        findings.append(
            _CHECK.skip(
                _KERNEL,
                "unknown: containers may not query the kernel's clock, and no API server responds",
            )
        )
    return findings


def _servers(ctx: DoctorContext) -> list[Path | None]:
    components = (*ctx.config.sources.values(), *ctx.config.sinks.values())
    found = [each.options for each in components if hasattr(each.options, "kubeconfig")]
    return list(dict.fromkeys(options.kubeconfig for options in found))


async def _compare(ctx: DoctorContext, kubeconfig: Path | None) -> Finding | None:
    """Compare with a server's clock; return None if the server gives no time.

    The server's own check reports why there is no time.
    """
    plugins = ctx.allowed.everything
    try:
        async with asyncio.timeout(min(_TIMEOUT, ctx.deadline / 2)):
            address = await in_thread(partial(_server_address, kubeconfig, plugins=plugins))
            ahead = await in_thread(partial(_clock_offset_from, address, ctx.clock))
    except (TransientError, TimeoutError):
        return None
    if ahead is None:
        return None
    place = f"the time in a response of {address}"
    if abs(ahead) <= _OFF:
        return _CHECK.ok(place, f"within {_OFF:g} s of this machine's clock")
    order = "ahead of" if ahead > 0 else "behind"
    observed = f"this machine's clock is {abs(ahead):.0f} s {order} the server's clock"
    return (_CHECK.failure if abs(ahead) > _FAR_OFF else _CHECK.warning)(place, observed, _FIX)


def _server_address(kubeconfig: Path | None, *, plugins: bool) -> str:
    """Return the address of an API server. Blocking.

    Args:
        kubeconfig: path of the kubeconfig; None for the service account of the pod.
        plugins: whether credential plugins that the kubeconfig names may run.

    Raises:
        TransientError: the credentials cannot be read.
    """
    # This imports the Kubernetes library.
    from pipeline.kube.credentials import KubeconfigFile, ServiceAccount  # noqa: PLC0415

    if kubeconfig is None:
        return ServiceAccount().load(reload=False).server
    return KubeconfigFile(kubeconfig, plugins=plugins).load(reload=False).server


def _clock_offset_from(address: str, clock: Clock) -> float | None:
    """Return by how many seconds this machine's clock is ahead of a server's clock. Blocking.

    Every response has a date, error responses too. Therefore the request needs no credentials, and
    the server's certificate is not verified.

    Args:
        address: `https://HOST:PORT`.
        clock: clock of this machine.

    Returns:
        The difference, accurate to about a second; None if the server sends no date.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # the check of the server reports it
        return None
    connection = unverified(host, port, _RESPONSE_TIMEOUT, secure=parts.scheme == "https")
    try:
        before = clock.now()
        connection.request("GET", "/version")
        date = connection.getresponse().getheader("Date") or ""
        middle = (before.wall_ns + clock.now().wall_ns) / 2
        # The date is truncated to whole seconds.
        return middle / NS - (parsedate_to_datetime(date).timestamp() + 0.5)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
