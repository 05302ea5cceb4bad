"""Whether the kernel's clock is synchronised, and the time of an API server."""

import ctypes
import http.client
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.clock import Clock
from pipeline.diagnostics.port_owner import unverified
from pipeline.model import NS

_TIMEOUT: Final = 5.0
_BUFFER_SIZE: Final = 512
"""Bytes; more than the size of `struct timex` on any machine (208 on 64 bits)."""
_TIME_ERROR: Final = 5
"""TIME_ERROR, which `adjtimex` returns for a clock that is not synchronised; see adjtimex(2)."""


def kernel_synchronised() -> bool | None:
    """Return whether the kernel's clock is synchronised; None if the call is not permitted.

    `modes` is 0, so the call changes nothing. Container runtimes refuse it without CAP_SYS_TIME.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = call(ctypes.create_string_buffer(_BUFFER_SIZE))
    return None if state < 0 else bool(state != _TIME_ERROR)


def server_address(kubeconfig: Path | None, *, plugins: bool) -> str:
    """Return the address of an API server. Blocking.

    Args:
        kubeconfig: as for `SourceContext.kube`.
        plugins: whether credential plugins that the kubeconfig names may run.

    Raises:
        TransientError: there are no credentials.
    """
    # This imports the Kubernetes library.
    from pipeline.kube.credentials import KubeconfigFile, ServiceAccount  # noqa: PLC0415

    if kubeconfig is None:
        return ServiceAccount().load(reload=False).server
    return KubeconfigFile(kubeconfig, plugins=plugins).load(reload=False).server


def clock_offset_from(address: str, clock: Clock) -> float | None:
    """Return by how many seconds this machine's clock is ahead of a server's clock. Blocking.

    Every response has a date, error responses too. So the request needs no credentials, and the
    server's certificate is not verified: only the date of the response is used.

    Args:
        address: `https://HOST:PORT`.
        clock: this machine's clock.

    Returns:
        The difference, accurate to about a second; None if the server gives no date.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # the check of the server reports it
        return None
    connection = unverified(host, port, _TIMEOUT, secure=parts.scheme == "https")
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
