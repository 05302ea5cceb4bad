"""What an endpoint means: a URL for HTTP, a target for gRPC.

The rules are those of "OTLP Exporter Configuration" in OpenTelemetry's specification.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from sinks.otlp.signals import METRICS, Signal

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_TARGET: Final = re.compile(r"(dns|unix|unix-abstract|ipv4|ipv6|vsock|xds):(?!\d+$)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]{0,19})://", re.IGNORECASE)
_LABEL: Final = 63
"""Characters that a part of a name may have (RFC 1035, 2.3.4)."""
_HOST_PORT: Final = re.compile(r"([\w.-]+|\[[\w:.%]+\])(?::(\d{1,5}))?", re.ASCII)

Kind: TypeAlias = Literal["option", "base", "exact"]
"""Where a URL for HTTP comes from, which decides its path.

* `option`: the file. Without a path it gets /v1/metrics, with one it stays as it is: it is where
  metrics go; for log records see `endpoint_for_signal`.
* `base`: OTEL_EXPORTER_OTLP_ENDPOINT. v1/metrics or v1/logs comes behind whatever path it has.
* `exact`: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT and ..._LOGS_ENDPOINT. Nothing is added to them.
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where messages go.

    Attributes:
        address: what the transport connects to: a URL for HTTP, a target for gRPC.
        display_address: the same for people, without what may be a secret.
        secure: whether there is TLS.
        hint: what looks like a mistake, for people; mostly empty.
    """

    address: str
    display_address: str
    secure: bool
    hint: str = ""


def http_endpoint(text: str, kind: Kind, signal: Signal = METRICS) -> Endpoint:
    """Return where an endpoint leads over HTTP.

    Raises:
        ValueError: it can't be used; the text says what is wrong and what mends it.
    """
    if not _URL.match(text):
        _check_scheme(text, "over HTTP it has to be http:// or https://")
        raise ValueError(
            "has no scheme: over HTTP write http:// or https:// before it, such as "
            "http://collector:4318"
        )
    parts = _checked(text)
    path = parts.path
    if kind == "base":
        path = f"{path.rstrip('/')}/{signal.path}"
    elif path in ("", "/"):
        path = f"/{signal.path}" if kind == "option" else "/"
    hint = ""
    if not path.rstrip("/").endswith(f"/{signal.path}"):
        hint = f"messages go to the path {path}, where most receivers have /{signal.path}"
        if kind == "exact":
            hint += "; this variable's URL is taken as it is, and nothing is added to it"
    elif parts.port == 4317:
        hint = "4317 is the port for gRPC as a rule, and 4318 that for HTTP"
    url = parts._replace(path=path)
    return Endpoint(url.geturl(), url._replace(query="").geturl(), parts.scheme == "https", hint)


def endpoint_for_signal(text: str, signal: Signal) -> str | None:
    """Return where another signal goes over HTTP, of a URL in the file that is for metrics.

    Returns:
        A URL without a path as it is; else /v1/metrics at the end gives way to the signal's. None
        where the path ends with something else, and so says nothing of others.
    """
    head, question, query = text.partition("?")
    if not head.partition("://")[2].rstrip("/").partition("/")[2]:
        return text
    before, found, after = head.rpartition(f"/{METRICS.path}")
    if not found or after.strip("/"):
        return None
    return f"{before}/{signal.path}{after}{question}{query}"


def grpc_endpoint(text: str, *, insecure: bool = False) -> Endpoint:
    """Return where an endpoint leads over gRPC.

    Args:
        text: a URL, a host with or without a port, or a target as gRPC writes it, such as
            dns:///collector:4317 or unix:/run/otel.sock.
        insecure: go without TLS where the scheme doesn't say. A unix socket never has it.

    Raises:
        ValueError: it can't be used; the text says what is wrong and what mends it.
    """
    if not text.isprintable() or " " in text:
        raise ValueError(_NO_ADDRESS)
    if _URL.match(text):
        parts = _checked(text)
        if parts.path not in ("", "/"):
            raise ValueError(
                f"has the path {parts.path}, which gRPC has none of: leave it out, or set the "
                "protocol to http/protobuf"
            )
        secure = parts.scheme == "https"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # Those of the scheme, as for any URL: 4317 is never put in silently.
        port = parts.port or (443 if secure else 80)
        hint = ""
        if parts.port is None:
            hint = f"it has no port, so {port} is taken; receivers for gRPC have 4317 as a rule"
        elif port == 4318:
            hint = "4318 is the port for HTTP as a rule: set the protocol to http/protobuf for it"
        elif parts.query:
            hint = "what follows the ? means nothing over gRPC"
        place = parts._replace(query="").geturl()
        return Endpoint(f"dns:///{host}:{port}", place, secure, hint)
    if target := _TARGET.match(text):
        scheme = target[1].lower()
        text = scheme + text[len(scheme) :]
        return Endpoint(text, text.partition("?")[0], not (insecure or scheme.startswith("unix")))
    _check_scheme(
        text, "over gRPC it has to be http:// or https://, or gRPC's own, such as dns:///"
    )
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 0 < int(found[2] or 443) <= 65535:
        raise ValueError(_NO_ADDRESS)
    _check_name(found[1])
    return Endpoint(f"dns:///{text}", text, not insecure)


_NO_ADDRESS: Final = "is no address: write for example http://collector:4317"


def _checked(text: str) -> SplitResult:
    """Return the parts of a URL; what it has of a user is never repeated."""
    try:
        parts = urlsplit(text)
        good = bool(parts.hostname) and parts.port != 0
    except ValueError:
        good, parts = False, SplitResult("", "", "", "", "")
    if not good or not text.isprintable() or " " in text:
        raise ValueError(_NO_ADDRESS)
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a user in it: give a header authorization instead")
    if "#" in text:
        raise ValueError(
            "has a # in it, which no address of a receiver has: leave out what follows"
        )
    if parts.netloc.endswith(":"):
        raise ValueError(
            "has a colon, and no port after it: write the port, or leave the colon out"
        )
    _check_name(parts.hostname or "")
    return parts


def _check_name(host: str) -> None:
    labels = host.removesuffix(".").split(".")
    if ":" not in host and not all(labels):
        raise ValueError(_NO_ADDRESS)
    if any(len(label) > _LABEL for label in labels):
        raise ValueError(
            f"has a host with more than {_LABEL} characters between two dots, which no name has: "
            "see whether something else got into it"
        )


def _check_scheme(text: str, allowed: str) -> None:
    """Raise ValueError if there is nothing, or a scheme of others."""
    if not text.strip():
        raise ValueError("is empty: write for example http://collector:4317, or leave it out")
    found = _SCHEME.match(text)
    if found and not _URL.match(text):
        raise ValueError(f"has the scheme {found[1].lower()}: {allowed}")
