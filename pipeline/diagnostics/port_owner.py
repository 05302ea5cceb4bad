"""Identify the server that listens at an address, with HTTP requests such as a scraper sends."""

import html
import http.client
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from pipeline.base.safe_text import line
from pipeline.kube.json_access import as_text, parsed_object

_TIMEOUT: Final = 3.0
_MAX_BYTES: Final = 1 << 18
_MAX_PODGPU_BYTES: Final = 16 << 20
"""Size limit for podgpu's own pages, in bytes: the page of a large node has several MiB."""

_MAX_TEXT: Final = 60
_STATUS: Final = "/status"
_METRICS: Final = "/metrics"
_OK: Final = 200
_TIMED_OUT: Final = 0
_FAILED: Final = -1
_NODE: Final = re.compile(r"<title>(?:podgpu on ([^<]*)|([^<]*): podgpu)</title>")
"""Matches the titles of podgpu's pages at `/`: the plain page and the status page."""

_EXPORTERS: Final = (
    (re.compile(rb"^DCGM_FI_|^dcgm_", re.MULTILINE), "dcgm-exporter"),
    (re.compile(rb"^nvidia_smi_|^nvidia_gpu_", re.MULTILINE), "an exporter of nvidia-smi's values"),
    (re.compile(rb"^node_cpu_|^node_memory_", re.MULTILINE), "node_exporter"),
    (re.compile(rb"^# (HELP|TYPE) ", re.MULTILINE), "an exporter for Prometheus"),
)


@dataclass(frozen=True, slots=True)
class PortOwner:
    """The server that listens at an address.

    Attributes:
        is_podgpu: whether the server is podgpu.
        description: what the server is, for people.
        node: the node name that this podgpu reports; empty if it is another server or unknown.
        is_silent: whether the server sent no HTTP response, or none in time.
        status: the body of this podgpu's `/status`; empty if it is not available, for example
            because a password is required.
        metrics: the body of this podgpu's metrics page; empty if it is not available.
    """

    is_podgpu: bool
    description: str
    node: str = ""
    is_silent: bool = False
    status: bytes = b""
    metrics: bytes = b""


SILENT: Final = PortOwner(
    False, "a server that accepts connections and does not respond within seconds", is_silent=True
)


def identify(host: str, port: int, path: str = _METRICS) -> PortOwner:
    """Find out which server listens at an address. Blocking.

    podgpu is identified by the header `Server`, which all its responses have, refusals included.
    Other servers are identified by their metrics page. The time limit applies to each read, so a
    server that sends its response slowly can take longer.
    """
    silent = False
    for secure in (False, True):
        status, server, first = _get(host, port, "/", secure=secure)
        if status <= 0:
            # A server of another protocol may wait for the rest of a TLS handshake.
            silent = silent or (status == _TIMED_OUT and not secure)
            continue
        if server == "podgpu":
            return _podgpu(host, port, first, secure=secure)
        page = _get(host, port, path, secure=secure)[2]
        exporter = next((name for found, name in _EXPORTERS if found.search(page)), "")
        header = f" (Server: {line(server, _MAX_TEXT)})" if server else ""
        return PortOwner(False, f"{exporter or 'an HTTP server'}{header}")
    if silent:
        return SILENT
    description = "a server that does not speak HTTP, or requires a client certificate"
    return PortOwner(False, description, is_silent=True)


def _podgpu(host: str, port: int, first: bytes, *, secure: bool) -> PortOwner:
    pages = []
    for path in (_STATUS, _METRICS):
        status, _, body = _get(host, port, path, secure=secure, max_bytes=_MAX_PODGPU_BYTES)
        pages.append(body if status == _OK else b"")
    node = _node(pages[0]) or _node_of_title(first)
    description = f"podgpu on {node}" if node else "podgpu"
    return PortOwner(True, description, node, status=pages[0], metrics=pages[1])


def certificate(host: str, port: int) -> bytes | None:
    """Return the server's certificate, in DER; None if the TLS handshake fails. Blocking.

    With TLS 1.3, the handshake also succeeds if the server requires a client certificate. With TLS
    1.2 it fails then.
    """
    try:
        with (
            socket.create_connection((host, port), timeout=_TIMEOUT) as plain,
            _unverified_context().wrap_socket(plain) as secure,
        ):
            return secure.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None


def _node(status: bytes) -> str:
    """Return the node name in a `/status` document; empty if there is none."""
    return line(as_text(parsed_object(status).get("node")), _MAX_TEXT * 5)


def _node_of_title(body: bytes) -> str:
    found = _NODE.search(body.decode("utf-8", "replace"))
    return line(html.unescape(found[1] or found[2] or "")) if found else ""


def _unverified_context() -> ssl.SSLContext:
    # Certificates are not verified: the request only identifies the server, and sends no secrets.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def unverified(
    host: str, port: int | None, timeout: float, *, secure: bool
) -> http.client.HTTPConnection:
    """Return a connection that does not verify the certificate of its server."""
    if not secure:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = _unverified_context()
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _get(
    host: str, port: int, path: str, *, secure: bool, max_bytes: int = _MAX_BYTES
) -> tuple[int, str, bytes]:
    """Return status, header `Server` and the beginning of the body of a response.

    The status is `_TIMED_OUT` if no response came in time, and `_FAILED` if the connection fails or
    the server does not speak HTTP.
    """
    connection = unverified(host, port, _TIMEOUT, secure=secure)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.getheader("Server") or "", response.read(max_bytes)
    except TimeoutError:
        return _TIMED_OUT, "", b""
    except (OSError, http.client.HTTPException):
        return _FAILED, "", b""
    finally:
        connection.close()
