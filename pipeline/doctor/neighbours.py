"""Who listens at an address: asked as a scrape would."""

import html
import http.client
import json
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from pipeline.texts import line

_SECONDS: Final = 3.0
_MOST: Final = 1 << 18
_LONGEST: Final = 60
_STATUS: Final = "/status"
_NODE: Final = re.compile(r"<title>podgpu on ([^<]*)</title>")
_EXPORTERS: Final = (
    (re.compile(rb"^DCGM_FI_|^dcgm_", re.MULTILINE), "dcgm-exporter"),
    (re.compile(rb"^nvidia_smi_|^nvidia_gpu_", re.MULTILINE), "an exporter of nvidia-smi's values"),
    (re.compile(rb"^node_cpu_|^node_memory_", re.MULTILINE), "node_exporter"),
    (re.compile(rb"^# (HELP|TYPE) ", re.MULTILINE), "an exporter for Prometheus"),
)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who answers.

    Attributes:
        podgpu: it is podgpu.
        who: for people.
        node: the name that this podgpu has for its node; empty if it doesn't say.
    """

    podgpu: bool
    who: str
    node: str = ""


def ask(host: str, port: int, path: str = "/metrics") -> Neighbour:
    """Find out who listens; blocking, for as long as somebody says a little now and then.

    podgpu is known by the header `Server` of all its answers, those that refuse included; others
    by what is on their page of metrics.
    """
    for secure in (False, True):
        answer = _get(host, port, "/", secure=secure)
        if answer is None:
            continue
        server, body = answer
        if server == "podgpu":
            node = _node(host, port, secure=secure) or _titled(body)
            return Neighbour(True, f"podgpu on {node}" if node else "podgpu", node)
        page = _get(host, port, path, secure=secure)
        text = page[1] if page is not None else b""
        exporter = next((name for found, name in _EXPORTERS if found.search(text)), "")
        said = f" (Server: {line(server, _LONGEST)})" if server else ""
        return Neighbour(False, f"{exporter or 'a server for HTTP'}{said}")
    return Neighbour(False, "somebody who doesn't speak HTTP, or wants a certificate")


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


def _node(host: str, port: int, *, secure: bool) -> str:
    """Return the node's name of `/status`; empty if it isn't told, as behind a password."""
    answer = _get(host, port, _STATUS, secure=secure)
    try:
        told = json.loads(answer[1]) if answer is not None else None
    except ValueError:
        return ""
    node = told.get("node") if isinstance(told, dict) else None
    return line(node, _LONGEST * 5) if isinstance(node, str) else ""


def _titled(body: bytes) -> str:
    found = _NODE.search(body.decode("utf-8", "replace"))
    return line(html.unescape(found[1])) if found else ""


def _trusting() -> ssl.SSLContext:
    # It is asked who it is, and told nothing.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(host: str, port: int, path: str, *, secure: bool) -> tuple[str, bytes] | None:
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    if secure:
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_trusting())
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.getheader("Server") or "", answer.read(_MOST)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
