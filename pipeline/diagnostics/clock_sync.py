"""What the kernel and an API server say of the time."""

import ctypes
import http.client
import ssl
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.clock import Clock
from pipeline.model import NS

_SECONDS: Final = 5.0
_ROOM: Final = 512
"""Bytes, more than a `struct timex` has on any machine (208 on 64 bits)."""
_ERROR: Final = 5
"""TIME_ERROR, what `adjtimex` returns for a clock that nobody keeps right; see adjtimex(2)."""


def kernel_synchronised() -> bool | None:
    """Whether somebody keeps the kernel's clock right; None where asking isn't allowed.

    `modes` is 0, so that nothing is set. Container runtimes refuse the call without CAP_SYS_TIME.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = call(ctypes.create_string_buffer(_ROOM))
    return None if state < 0 else bool(state != _ERROR)


def server_address(kubeconfig: Path | None, *, plugins: bool) -> str:
    """Return the address of an API server. Blocking.

    Args:
        kubeconfig: as of `SourceContext.kube`.
        plugins: whether programs that it names may be run.

    Raises:
        TransientError: there are no credentials.
    """
    # It loads the library for Kubernetes.
    from pipeline.kube.credentials import KubeconfigFile, ServiceAccount  # noqa: PLC0415

    if kubeconfig is None:
        return ServiceAccount().load(reload=False).server
    return KubeconfigFile(kubeconfig, plugins=plugins).load(reload=False).server


def clock_offset_from(address: str, clock: Clock) -> float | None:
    """Return by how many seconds this machine's clock is ahead of a server's. Blocking.

    Whoever asks gets a date, with an error if need be; so it takes no credentials, and nothing
    that is told in the answer is believed but that.

    Args:
        address: `https://HOST:PORT`.
        clock: this machine's.

    Returns:
        Within a second or so; None if the server doesn't say.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # the check of the server tells
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    try:
        asked = clock.now()
        connection.request("GET", "/version")
        told = connection.getresponse().getheader("Date") or ""
        between = (asked.wall_ns + clock.now().wall_ns) / 2
        # Its date is cut to whole seconds.
        return between / NS - (parsedate_to_datetime(told).timestamp() + 0.5)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
