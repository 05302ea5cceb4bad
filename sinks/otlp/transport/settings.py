"""Combine the options with the environment variables `OTEL_*`.

Precedence: an option in podgpu's file, `OTEL_EXPORTER_OTLP_METRICS_*` (`..._LOGS_*` for log
records), `OTEL_EXPORTER_OTLP_*`, the default. An empty variable counts as not set.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, get_args
from urllib.parse import unquote

from pipeline.base.errors import PermanentError
from pipeline.base.safe_text import line, shortened
from sinks.otlp.options import (
    Compression,
    Options,
    Protocol,
    Temporality,
    TlsOptions,
    header_problem,
)
from sinks.otlp.signals import LOGS, METRICS, Signal
from sinks.otlp.transport import endpoints
from sinks.otlp.transport.endpoints import Endpoint

T = TypeVar("T")

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_DEFAULTS: Final[dict[Protocol, str]] = {
    "grpc": "http://localhost:4317",
    "http/protobuf": "http://localhost:4318",
}
_FILES: Final[dict[str, str]] = {
    "ca": "CERTIFICATE",
    "cert": "CLIENT_CERTIFICATE",
    "key": "CLIENT_KEY",
}
_PROMETHEUS: Final = f"/api/v1/otlp/{LOGS.path}"
_TIMEOUTS: Final = (100, 600_000)
"""Range in milliseconds, the same as for the option."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The receiver of a signal and how to send to it.

    Attributes:
        headers: headers of each request, with names in lower case.
        timeout: timeout of a request, in seconds.
        tls: the TLS files; no files if the endpoint does not use TLS.
        token_file: file with the token for the header authorization.
        resource: attributes of every resource, with `service.name` if it is configured.
        tls_names: names of the TLS files for messages, by part, for files that variables set.
        hints: probable mistakes, one sentence each.
    """

    protocol: Protocol
    endpoint: Endpoint
    headers: Mapping[str, str]
    compression: Compression
    timeout: float
    temporality: Temporality
    tls: TlsOptions
    token_file: Path | None
    resource: Mapping[str, str]
    tls_names: Mapping[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    signal: Signal = METRICS


def resolve_settings(options: Options, environ: Mapping[str, str]) -> Settings:
    """Return the settings for metrics.

    Raises:
        PermanentError: a variable has an invalid value. The message names it and the fix.
    """
    env = _Variables(environ, METRICS)
    return _make_settings(options, env, _protocol_of(options, env), options.endpoint)


def resolve_log_settings(options: Options, environ: Mapping[str, str]) -> Settings | None:
    """Return the settings for log records.

    Returns:
        None if only metrics have an endpoint: the configured URL has a path that is not OTLP's; or
        only the variable for the metrics endpoint is set (then the default, localhost, is not
        intended); or the endpoint is Prometheus, which accepts metrics only.

    Raises:
        PermanentError: see `resolve_settings`.
    """
    env = _Variables(environ, LOGS)
    protocol, endpoint = _protocol_of(options, env), options.endpoint
    if endpoint is not None and protocol == "http/protobuf":
        endpoint = endpoints.endpoint_for_signal(endpoint, LOGS)
        if endpoint is None:
            return None
    if endpoint is None and not env.find(*env.names("ENDPOINT")):
        metrics_variable, _ = _Variables(environ, METRICS).names("ENDPOINT")
        if env.find(metrics_variable):
            return None
    settings = _make_settings(options, env, protocol, endpoint)
    return None if settings.endpoint.display_address.rstrip("/").endswith(_PROMETHEUS) else settings


def _protocol_of(options: Options, env: "_Variables") -> Protocol:
    return options.protocol or env.read("PROTOCOL", _protocol) or "grpc"


def _make_settings(
    options: Options, env: "_Variables", protocol: Protocol, address: str | None
) -> Settings:
    insecure, insecure_hint = _insecure(env)
    endpoint = _endpoint(address, env, protocol, insecure=insecure)
    hints = [hint for hint in (endpoint.hint, insecure_hint) if hint]
    tls = options.tls
    tls_names: dict[str, str] = {}
    if tls == TlsOptions():
        tls, tls_names = _tls(env)
    if not endpoint.secure:
        if options.tls != TlsOptions():
            hints.append("the endpoint does not use TLS, so the tls options have no effect")
        tls = TlsOptions()
    configured = options.headers or env.read("HEADERS", _headers) or {}
    return Settings(
        protocol=protocol,
        endpoint=endpoint,
        headers={
            name.lower(): value
            for name, value in configured.items()
            if not (options.bearer_token_file and name.lower() == "authorization")
        },
        compression=options.compression
        or env.read("COMPRESSION", partial(_one_of, Compression))
        or "gzip",
        timeout=float(options.timeout or 0) or env.read("TIMEOUT", _timeout) or 10.0,
        # The specification has no variable for all signals: temporality is only for metrics.
        temporality=options.temporality
        or env.get(partial(_one_of, Temporality), f"{_PREFIX}METRICS_TEMPORALITY_PREFERENCE")
        or "cumulative",
        tls=tls,
        tls_names=tls_names,
        token_file=options.bearer_token_file,
        resource={**_resource(env), **options.resource},
        hints=tuple(f"{endpoint.display_address}: {hint}" for hint in hints),
        signal=env.signal,
    )


class _Variables:
    def __init__(self, environ: Mapping[str, str], signal: Signal) -> None:
        self._environ = environ
        self.signal = signal

    def names(self, name: str) -> tuple[str, str]:
        """Return the full names of an exporter variable: for the signal, and for all signals."""
        return f"{_PREFIX}{self.signal.variable}_{name}", f"{_PREFIX}{name}"

    def find(self, *names: str) -> tuple[str, str] | None:
        """Return name and value of the first variable that has a value."""
        for name in names:
            if value := self._environ.get(name, "").strip():
                return name, value
        return None

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """Parse an exporter variable. The name for the signal precedes that for all signals."""
        return self.get(read, *self.names(name))

    def get(self, read: Callable[[str], T], *names: str) -> T | None:
        """Parse the first variable that has a value.

        Raises:
            PermanentError: `read` raised ValueError.
        """
        if (found := self.find(*names)) is None:
            return None
        try:
            return read(found[1])
        except ValueError as error:
            raise PermanentError(f"the variable {found[0]} {error}") from None


def _insecure(env: _Variables) -> tuple[bool, str]:
    """Return the value of the variable, and a hint if the value is probably a mistake.

    Anything but true counts as false ("Boolean value" in OpenTelemetry's specification of
    environment variables).
    """
    found = env.find(*env.names("INSECURE"))
    if found is None:
        return False, ""
    text = found[1].lower()
    if text in ("true", "false"):
        return text == "true", ""
    shown = line(found[1], 60)
    hint = f"the variable {found[0]} is {shown!r}, which counts as false: set true or false"
    return False, hint


def _endpoint(
    address: str | None, env: _Variables, protocol: Protocol, *, insecure: bool
) -> Endpoint:
    def parser(kind: endpoints.Kind) -> Callable[[str], Endpoint]:
        if protocol == "grpc":
            return lambda text: endpoints.grpc_endpoint(text, insecure=insecure)
        return lambda text: endpoints.http_endpoint(text, kind, env.signal)

    if address is not None:
        try:
            return parser("option")(address)
        except ValueError as error:
            raise PermanentError(f"endpoint {error} (the protocol is {protocol})") from None
    exact, base = env.names("ENDPOINT")
    return (
        env.get(parser("exact"), exact)
        or env.get(parser("base"), base)
        or parser("option")(_DEFAULTS[protocol])
    )


def _tls(env: _Variables) -> tuple[TlsOptions, dict[str, str]]:
    """Return the TLS files that variables set, and their names for messages."""
    paths: dict[str, Path] = {}
    names: dict[str, str] = {}
    for part, name in _FILES.items():
        if found := env.find(*env.names(name)):
            names[part], paths[part] = f"the file of {found[0]}", Path(found[1])
    tls = TlsOptions(
        ca_file=paths.get("ca"), cert_file=paths.get("cert"), key_file=paths.get("key")
    )
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "CLIENT_KEY" if tls.cert_file else "CLIENT_CERTIFICATE"
        raise PermanentError(
            f"the variable {_PREFIX}{missing} is not set: set both, the certificate and its key"
        )
    return tls, names


def _resource(env: _Variables) -> dict[str, str]:
    found = env.get(lambda text: dict(_pairs(text)), "OTEL_RESOURCE_ATTRIBUTES") or {}
    if name := env.find("OTEL_SERVICE_NAME"):
        found["service.name"] = name[1]
    return found


def _protocol(text: str) -> Any:
    if text.lower() == "http/json":
        raise ValueError("is http/json, which podgpu does not support: set http/protobuf or grpc")
    return _one_of(Protocol, text)


def _timeout(text: str) -> float:
    least, most = _TIMEOUTS
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError("must be whole milliseconds without a unit, such as 10000")
    if not least <= int(text) <= most:
        raise ValueError(
            f"is {text} milliseconds: it must be from {least} to {most}; 10000 is ten seconds"
        )
    return int(text) / 1000


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _pairs(text):
        if flaw := header_problem(name, value):
            raise ValueError(f"has a header {shortened(name, 60)!r} that {flaw}")
        found[name] = value
    return found


def _one_of(literal: object, text: str) -> Any:
    """Return the value of a Literal that a text names in any case."""
    text, values = text.lower(), get_args(literal)
    if text not in values:
        raise ValueError(f"is {shortened(text, 60)!r}: it must be {' or '.join(values)}")
    return text


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `k=v,k2=v2`, percent-decoded.

    This is the format of W3C Baggage without properties; see "Specifying headers via environment
    variables" in the OpenTelemetry specification of exporters.

    Raises:
        ValueError: the format is wrong. The message contains no value, which may be a secret.
    """
    for number, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"has entry {number}, which is not of the form name=value")
        try:
            yield unquote(name.strip(), errors="strict"), unquote(value.strip(), errors="strict")
        except UnicodeDecodeError:
            raise ValueError(f"has entry {number} with %-escapes that are not UTF-8") from None
