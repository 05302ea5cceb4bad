"""Parse endpoints: URLs for HTTP, targets for gRPC.

The rules are those of "OTLP Exporter Configuration" in the OpenTelemetry specification.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from sinks.otlp.signals import METRICS, Signal

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_TARGET: Final = re.compile(r"(dns|unix|unix-abstract|ipv4|ipv6|vsock|xds):(?!\d+$)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]{0,19})://", re.IGNORECASE)
_MAX_LABEL: Final = 63
"""Maximum length of a label in a host name (RFC 1035, 2.3.4)."""
_HTTP_EXAMPLE: Final = "http://collector:4318"
_GRPC_EXAMPLE: Final = "http://collector:4317"
_HOST_PORT: Final = re.compile(r"([\w.-]+|\[[\w:.%]+\])(?::(\d{1,5}))?", re.ASCII)

Kind: TypeAlias = Literal["option", "base", "exact"]
"""Origin of a URL for HTTP, which decides its path.

* `option`: the configuration file. If the URL has no path, /v1/metrics is added. The URL is for
  metrics; see `endpoint_for_signal` for log records.
* `base`: OTEL_EXPORTER_OTLP_ENDPOINT. v1/metrics or v1/logs is appended to its path.
* `exact`: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT or ..._LOGS_ENDPOINT. Nothing is appended.
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of a receiver.

    Attributes:
        address: what the transport connects to: a URL for HTTP, a target for gRPC.
        display_address: the address for messages, without possible secrets.
        secure: whether to use TLS.
        hint: a probable mistake, for users; usually empty.
    """

    address: str
    display_address: str
    secure: bool
    hint: str = ""


def http_endpoint(text: str, kind: Kind, signal: Signal = METRICS) -> Endpoint:
    """Parse an endpoint for HTTP.

    Raises:
        ValueError: the text is invalid; the message says why and how to fix it.
    """
    if not _URL.match(text):
        _check_scheme(text, "over HTTP it must be http:// or https://", _HTTP_EXAMPLE)
        raise ValueError(
            "has no scheme: over HTTP it must begin with http:// or https://, such as "
            f"{_HTTP_EXAMPLE}"
        )
    parts = _split_url(text, _HTTP_EXAMPLE)
    path = parts.path
    if kind == "base":
        path = f"{path.rstrip('/')}/{signal.path}"
    elif path in ("", "/"):
        path = f"/{signal.path}" if kind == "option" else "/"
    hint = ""
    if not path.rstrip("/").endswith(f"/{signal.path}"):
        hint = f"messages go to the path {path}, but most receivers use /{signal.path}"
        if kind == "exact":
            hint += "; podgpu adds nothing to the URL of this variable"
    elif parts.port == 4317:
        hint = "4317 is usually the port for gRPC, and 4318 the port for HTTP"
    url = parts._replace(path=path)
    return Endpoint(url.geturl(), url._replace(query="").geturl(), parts.scheme == "https", hint)


def endpoint_for_signal(text: str, signal: Signal) -> str | None:
    """Return the URL for another signal over HTTP, from the configured URL for metrics.

    Returns:
        A URL without a path stays as it is. In others, /v1/metrics at the end is replaced by the
        signal's path. None if the path ends differently: then other signals have no known URL.
    """
    head, question, query = text.partition("?")
    if not head.partition("://")[2].rstrip("/").partition("/")[2]:
        return text
    before, found, after = head.rpartition(f"/{METRICS.path}")
    if not found or after.strip("/"):
        return None
    return f"{before}/{signal.path}{after}{question}{query}"


def grpc_endpoint(text: str, *, insecure: bool = False) -> Endpoint:
    """Parse an endpoint for gRPC.

    Args:
        text: a URL, a host with or without a port, or a gRPC target such as
            dns:///collector:4317 or unix:/run/otel.sock.
        insecure: whether to use no TLS if the scheme does not decide it. A unix socket never uses
            TLS.

    Raises:
        ValueError: the text is invalid; the message says why and how to fix it.
    """
    if not text.isprintable() or " " in text:
        raise ValueError(_not_an_address(_GRPC_EXAMPLE))
    if _URL.match(text):
        parts = _split_url(text, _GRPC_EXAMPLE)
        if parts.path not in ("", "/"):
            raise ValueError(
                f"has the path {parts.path}, but gRPC has no paths: remove it, or set the "
                "protocol to http/protobuf"
            )
        secure = parts.scheme == "https"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # The default port of the scheme, as in any URL. 4317 is never assumed silently.
        port = parts.port or (443 if secure else 80)
        hint = ""
        if parts.port is None:
            hint = f"it has no port, so {port} is used; gRPC receivers usually listen on 4317"
        elif port == 4318:
            hint = "4318 is usually the port for HTTP: for HTTP set the protocol to http/protobuf"
        elif parts.query:
            hint = "the part after the ? has no effect over gRPC"
        display_address = parts._replace(query="").geturl()
        return Endpoint(f"dns:///{host}:{port}", display_address, secure, hint)
    if target := _TARGET.match(text):
        scheme = target[1].lower()
        text = scheme + text[len(scheme) :]
        return Endpoint(text, text.partition("?")[0], not (insecure or scheme.startswith("unix")))
    _check_scheme(
        text,
        "over gRPC it must be http:// or https://, or a gRPC scheme such as dns:///",
        _GRPC_EXAMPLE,
    )
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 0 < int(found[2] or 443) <= 65535:
        raise ValueError(_not_an_address(_GRPC_EXAMPLE))
    _check_name(found[1], _GRPC_EXAMPLE)
    return Endpoint(f"dns:///{text}", text, not insecure)


def _not_an_address(example: str) -> str:
    return f"is not an address: use for example {example}"


def _split_url(text: str, example: str) -> SplitResult:
    """Return the parts of a URL. Messages never contain its user and password.

    Raises:
        ValueError: the text is invalid; the message says why and how to fix it.
    """
    try:
        parts = urlsplit(text)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid, parts = False, SplitResult("", "", "", "", "")
    if not valid or not text.isprintable() or " " in text:
        raise ValueError(_not_an_address(example))
    if parts.username is not None or parts.password is not None:
        raise ValueError("contains a user: use the header authorization instead")
    if "#" in text:
        raise ValueError("contains a #, which no endpoint has: remove it and what follows")
    if parts.netloc.endswith(":"):
        raise ValueError("has a colon without a port: add the port, or remove the colon")
    _check_name(parts.hostname or "", example)
    return parts


def _check_name(host: str, example: str) -> None:
    labels = host.removesuffix(".").split(".")
    if ":" not in host and not all(labels):
        raise ValueError(_not_an_address(example))
    if any(len(label) > _MAX_LABEL for label in labels):
        raise ValueError(
            f"has a host with a part of more than {_MAX_LABEL} characters, which is not valid: "
            "write only the name of the host there"
        )


def _check_scheme(text: str, allowed: str, example: str) -> None:
    """Raise ValueError if the text is empty, or has a scheme other than http and https."""
    if not text.strip():
        raise ValueError(f"is empty: use for example {example}, or remove it")
    found = _SCHEME.match(text)
    if found and not _URL.match(text):
        raise ValueError(f"has the scheme {found[1].lower()}: {allowed}")
