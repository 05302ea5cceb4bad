"""What the options and the variables `OTEL_*` come to together.

An option in podgpu's file goes before `OTEL_EXPORTER_OTLP_METRICS_*`, or `..._LOGS_*` for log
records, that before `OTEL_EXPORTER_OTLP_*`, and that before the default. An empty variable counts
as none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, cast

from pipeline.base.errors import PermanentError
from pipeline.base.safe_text import line, shortened
from pipeline.net.pem import Part
from sinks.otlp.options import Compression, Options, Protocol, Temporality, TlsOptions
from sinks.otlp.signals import LOGS, METRICS, Signal
from sinks.otlp.transport import endpoints, headers
from sinks.otlp.transport.endpoints import Endpoint

T = TypeVar("T")

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_DEFAULTS: Final[dict[Protocol, str]] = {
    "grpc": "http://localhost:4317",
    "http/protobuf": "http://localhost:4318",
}
_FILES: Final[dict[Part, str]] = {
    "ca": "CERTIFICATE",
    "cert": "CLIENT_CERTIFICATE",
    "key": "CLIENT_KEY",
}
_PROMETHEUS: Final = f"/api/v1/otlp/{LOGS.path}"
_TIMEOUTS: Final = (100, 600_000)
"""Milliseconds: the bounds that the option has too."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that is to be known about the receiver of a signal.

    Attributes:
        headers: with names in lower case.
        timeout: seconds.
        tls: empty where the endpoint is without.
        token_file: of the header authorization.
        resource: attributes of every resource, `service.name` among them if somebody set it.
        tls_names: what the files of tls are called where a variable named them, by their part.
        hints: what looks like a mistake, one sentence each.
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
    tls_names: Mapping[Part, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    signal: Signal = METRICS


def resolve_settings(options: Options, environ: Mapping[str, str]) -> Settings:
    """Return what holds for metrics.

    Raises:
        PermanentError: a variable has a value that can't be used; the text names it and the mend.
    """
    env = _Variables(environ, METRICS)
    return _make_settings(options, env, _protocol_of(options, env), options.endpoint)


def resolve_log_settings(options: Options, environ: Mapping[str, str]) -> Settings | None:
    """Return what holds for log records.

    Returns:
        None where only metrics have a place: a path in the file that is none of OTLP's, the
        variable for metrics alone (the default, this machine, would be nobody's meaning then), or a
        Prometheus, which takes nothing else.

    Raises:
        PermanentError: as `resolve_settings` does.
    """
    env = _Variables(environ, LOGS)
    protocol, endpoint = _protocol_of(options, env), options.endpoint
    if endpoint is not None and protocol == "http/protobuf":
        endpoint = endpoints.endpoint_for_signal(endpoint, LOGS)
        if endpoint is None:
            return None
    if endpoint is None and not env.find(*env.names("ENDPOINT")):
        of_metrics, _ = _Variables(environ, METRICS).names("ENDPOINT")
        if env.find(of_metrics):
            return None
    settings = _make_settings(options, env, protocol, endpoint)
    return None if settings.endpoint.display_address.rstrip("/").endswith(_PROMETHEUS) else settings


def _protocol_of(options: Options, env: "_Variables") -> Protocol:
    return options.protocol or env.read("PROTOCOL", _protocol) or "grpc"


def _make_settings(
    options: Options, env: "_Variables", protocol: Protocol, address: str | None
) -> Settings:
    insecure, doubt = _insecure(env)
    endpoint = _endpoint(address, env, protocol, insecure=insecure)
    hints = [hint for hint in (endpoint.hint, doubt) if hint]
    tls = options.tls
    tls_names: dict[Part, str] = {}
    if tls == TlsOptions():
        tls, tls_names = _tls(env)
    if not endpoint.secure:
        if options.tls != TlsOptions():
            hints.append("the endpoint is without TLS, so the options of tls mean nothing")
        tls = TlsOptions()
    given = options.headers or env.read("HEADERS", _headers) or {}
    return Settings(
        protocol=protocol,
        endpoint=endpoint,
        headers={
            name.lower(): value
            for name, value in given.items()
            if not (options.bearer_token_file and name.lower() == "authorization")
        },
        compression=options.compression or env.read("COMPRESSION", _compression) or "gzip",
        timeout=float(options.timeout or 0) or env.read("TIMEOUT", _timeout) or 10.0,
        temporality=options.temporality or _temporality(env) or "cumulative",
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
        """Return what a variable of the exporter is called, for the signal and for all."""
        return f"{_PREFIX}{self.signal.variable}_{name}", f"{_PREFIX}{name}"

    def find(self, *names: str) -> tuple[str, str] | None:
        """Return the first of the variables that has a value, and the value."""
        for name in names:
            if value := self._environ.get(name, "").strip():
                return name, value
        return None

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """Read what a variable of the exporter says, that for the signal before that for all."""
        return self.get(read, *self.names(name))

    def get(self, read: Callable[[str], T], *names: str) -> T | None:
        """Read what the first of the variables says.

        Raises:
            PermanentError: `read` can't.
        """
        if (found := self.find(*names)) is None:
            return None
        try:
            return read(found[1])
        except ValueError as error:
            raise PermanentError(f"the variable {found[0]} {error}") from None


def _insecure(env: _Variables) -> tuple[bool, str]:
    """Return what holds, and a hint if that is perhaps not what was meant.

    Anything but true is false: "Boolean value" in OpenTelemetry's specification of variables.
    """
    found = env.find(*env.names("INSECURE"))
    if found is None:
        return False, ""
    text = found[1].lower()
    if text in ("true", "false"):
        return text == "true", ""
    said = line(found[1], 60)
    return False, f"the variable {found[0]} is {said!r}, which counts as false: write true or false"


def _endpoint(
    given: str | None, env: _Variables, protocol: Protocol, *, insecure: bool
) -> Endpoint:
    def made(kind: endpoints.Kind) -> Callable[[str], Endpoint]:
        if protocol == "grpc":
            return lambda text: endpoints.grpc_endpoint(text, insecure=insecure)
        return lambda text: endpoints.http_endpoint(text, kind, env.signal)

    if given is not None:
        try:
            return made("option")(given)
        except ValueError as error:
            raise PermanentError(f"endpoint {error} (the protocol is {protocol})") from None
    exact, base = env.names("ENDPOINT")
    return (
        env.get(made("exact"), exact)
        or env.get(made("base"), base)
        or made("option")(_DEFAULTS[protocol])
    )


def _tls(env: _Variables) -> tuple[TlsOptions, dict[Part, str]]:
    """Return the files that variables name, and what they are called in messages."""
    paths: dict[Part, Path] = {}
    names: dict[Part, str] = {}
    for part, name in _FILES.items():
        if found := env.find(*env.names(name)):
            names[part], paths[part] = f"the file of {found[0]}", Path(found[1])
    tls = TlsOptions(
        ca_file=paths.get("ca"), cert_file=paths.get("cert"), key_file=paths.get("key")
    )
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "CLIENT_KEY" if tls.cert_file else "CLIENT_CERTIFICATE"
        raise PermanentError(
            f"the variable {_PREFIX}{missing} is missing: a certificate and its key go together"
        )
    return tls, names


def _resource(env: _Variables) -> dict[str, str]:
    found = env.get(_attributes, "OTEL_RESOURCE_ATTRIBUTES") or {}
    if name := env.find("OTEL_SERVICE_NAME"):
        found["service.name"] = name[1]
    return found


def _temporality(env: _Variables) -> Temporality | None:
    # There is none for all signals: it is of metrics alone.
    return env.get(
        lambda text: cast("Temporality", _one_of(text.lower(), "cumulative", "delta", "lowmemory")),
        f"{_PREFIX}METRICS_TEMPORALITY_PREFERENCE",
    )


def _protocol(text: str) -> Protocol:
    text = text.lower()
    if text == "http/json":
        raise ValueError(
            "asks for http/json, which podgpu doesn't speak: set http/protobuf or grpc"
        )
    return cast("Protocol", _one_of(text, "grpc", "http/protobuf"))


def _compression(text: str) -> Compression:
    return cast("Compression", _one_of(text.lower(), "gzip", "none"))


def _timeout(text: str) -> float:
    least, most = _TIMEOUTS
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError("is in whole milliseconds, such as 10000: write it without a unit")
    if not least <= int(text) <= most:
        raise ValueError(
            f"is {text} milliseconds: it has to be from {least} to {most}; 10000 are ten seconds"
        )
    return int(text) / 1000


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers.parse_pairs(text):
        if flaw := headers.header_problem(name, value):
            raise ValueError(f"has a header {shortened(name, 60)!r} that {flaw}")
        found[name] = value
    return found


def _attributes(text: str) -> dict[str, str]:
    return dict(headers.parse_pairs(text))


def _one_of(text: str, *words: str) -> str:
    if text not in words:
        raise ValueError(f"is {shortened(text, 60)!r}: it has to be {' or '.join(words)}")
    return text
