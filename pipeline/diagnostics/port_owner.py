"""Who listens at an address: asked as a scrape would."""

import html
import http.client
import json
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from pipeline.base.safe_text import line

_SECONDS: Final = 3.0
_MOST: Final = 1 << 18
_MOST_OF_PODGPU: Final = 16 << 20
"""Bytes of podgpu's own pages: that of a large node has some of them."""

_LONGEST: Final = 60
_STATUS: Final = "/status"
_METRICS: Final = "/metrics"
_OK: Final = 200
_NODE: Final = re.compile(r"<title>(?:podgpu on ([^<]*)|([^<]*): podgpu)</title>")
"""Of the plain first page, and of the status page."""

_EXPORTERS: Final = (
    (re.compile(rb"^DCGM_FI_|^dcgm_", re.MULTILINE), "dcgm-exporter"),
    (re.compile(rb"^nvidia_smi_|^nvidia_gpu_", re.MULTILINE), "an exporter of nvidia-smi's values"),
    (re.compile(rb"^node_cpu_|^node_memory_", re.MULTILINE), "node_exporter"),
    (re.compile(rb"^# (HELP|TYPE) ", re.MULTILINE), "an exporter for Prometheus"),
)


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who answers.

    Attributes:
        is_podgpu: it is podgpu.
        description: for people.
        node: the name that this podgpu has for its node; empty if it doesn't say.
        is_silent: nothing was answered that HTTP knows, or nothing in time.
        status: what `/status` of this podgpu answers; empty if it isn't told, as without a
            password.
        metrics: its own page of metrics, likewise.
    """

    is_podgpu: bool
    description: str
    node: str = ""
    is_silent: bool = False
    status: bytes = b""
    metrics: bytes = b""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came.

    Attributes:
        code: of HTTP; 0 if nothing came in time.
        server: the header `Server`.
        body: the beginning of it.
    """

    code: int
    server: str = ""
    body: bytes = b""


SILENT: Final = PortOwner(
    False, "somebody who takes connections and says nothing within seconds", is_silent=True
)


def identify(host: str, port: int, path: str = _METRICS) -> PortOwner:
    """Find out who listens; blocking, for as long as somebody says a little now and then.

    podgpu is known by the header `Server` of all its answers, those that refuse included; others
    by what is on their page of metrics.
    """
    silent = False
    for secure in (False, True):
        answer = _get(host, port, "/", secure=secure)
        if answer is None or not answer.code:
            # A server of something else may wait for the rest of what TLS begins with.
            silent = silent or (answer is not None and not secure)
            continue
        if answer.server == "podgpu":
            return _podgpu(host, port, answer.body, secure=secure)
        page = _get(host, port, path, secure=secure)
        text = page.body if page is not None else b""
        exporter = next((name for found, name in _EXPORTERS if found.search(text)), "")
        said = f" (Server: {line(answer.server, _LONGEST)})" if answer.server else ""
        return PortOwner(False, f"{exporter or 'a server for HTTP'}{said}")
    if silent:
        return SILENT
    who = "somebody who doesn't speak HTTP, or wants a certificate"
    return PortOwner(False, who, is_silent=True)


def _podgpu(host: str, port: int, first: bytes, *, secure: bool) -> PortOwner:
    pages = []
    for path in (_STATUS, _METRICS):
        answer = _get(host, port, path, secure=secure, most=_MOST_OF_PODGPU)
        pages.append(answer.body if answer is not None and answer.code == _OK else b"")
    node = _node(pages[0]) or _node_of_title(first)
    who = f"podgpu on {node}" if node else "podgpu"
    return PortOwner(True, who, node, status=pages[0], metrics=pages[1])


def certificate(host: str, port: int) -> bytes | None:
    """Return the certificate that is shown there, DER; None if none is. Blocking.

    A server of TLS 1.3 shows it before it wants one itself.
    """
    try:
        with (
            socket.create_connection((host, port), timeout=_SECONDS) as plain,
            _trusting().wrap_socket(plain) as secure,
        ):
            return secure.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None


def _node(status: bytes) -> str:
    """Return the node's name of `/status`; empty if it isn't told."""
    try:
        told = json.loads(status)
    except (ValueError, RecursionError):
        return ""
    node = told.get("node") if isinstance(told, dict) else None
    return line(node, _LONGEST * 5) if isinstance(node, str) else ""


def _node_of_title(body: bytes) -> str:
    found = _NODE.search(body.decode("utf-8", "replace"))
    return line(html.unescape(found[1] or found[2] or "")) if found else ""


def _trusting() -> ssl.SSLContext:
    # It is asked who it is, and told nothing.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(host: str, port: int, path: str, *, secure: bool, most: int = _MOST) -> _Answer | None:
    """Return what comes; None where a connection isn't had, breaks, or has no HTTP."""
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if secure:
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_trusting())
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return _Answer(answer.status, answer.getheader("Server") or "", answer.read(most))
    except TimeoutError:
        return _Answer(0)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
