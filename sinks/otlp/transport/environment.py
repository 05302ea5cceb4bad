"""What the options and the variables `OTEL_*` come to together.

An option in podgpu's file goes before `OTEL_EXPORTER_OTLP_METRICS_*`, that before
`OTEL_EXPORTER_OTLP_*`, and that before the default. An empty variable counts as none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from pipeline.errors import PermanentError
from pipeline.texts import line
from sinks.otlp.options import Compression, Options, Protocol, Temporality, TlsOptions
from sinks.otlp.transport import endpoints, headers
from sinks.otlp.transport.endpoints import Endpoint

T = TypeVar("T")

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_DEFAULTS: Final[dict[Protocol, str]] = {
    "grpc": "http://localhost:4317",
    "http/protobuf": "http://localhost:4318",
}
_TIMEOUTS: Final = (100, 600_000)
"""Milliseconds: the bounds that the option has too."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that is to be known about the receiver.

    Attributes:
        headers: with names in lower case.
        timeout: seconds.
        tls: empty where the endpoint is without.
        token_file: of the header authorization.
        resource: attributes of every resource, `service.name` among them if somebody set it.
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
    hints: tuple[str, ...] = ()


def settle(options: Options, environ: Mapping[str, str]) -> Settings:
    """Return what holds.

    Raises:
        PermanentError: a variable has a value that can't be used; the text names it and the mend.
    """
    env = _Variables(environ)
    protocol = options.protocol or env.read("PROTOCOL", _protocol) or "grpc"
    endpoint = _endpoint(options, env, protocol)
    hints = [endpoint.hint] if endpoint.hint else []
    tls = options.tls if options.tls != TlsOptions() else _tls(env)
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
        token_file=options.bearer_token_file,
        resource={**_resource(env), **options.resource},
        hints=tuple(f"{endpoint.place}: {hint}" for hint in hints),
    )


class _Variables:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def find(self, *names: str) -> tuple[str, str] | None:
        """Return the first of the variables that has a value, and the value."""
        for name in names:
            if value := self._environ.get(name, "").strip():
                return name, value
        return None

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """Read what a variable of the exporter says, that for metrics before that for all."""
        return self.get(read, f"{_PREFIX}METRICS_{name}", f"{_PREFIX}{name}")

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


def _endpoint(options: Options, env: _Variables, protocol: Protocol) -> Endpoint:
    insecure = env.read("INSECURE", _flag) or False

    def made(kind: endpoints.Kind) -> Callable[[str], Endpoint]:
        if protocol == "grpc":
            return lambda text: endpoints.grpc(text, insecure=insecure)
        return lambda text: endpoints.http(text, kind)

    if options.endpoint is not None:
        try:
            return made("option")(options.endpoint)
        except ValueError as error:
            raise PermanentError(f"endpoint {error} (the protocol is {protocol})") from None
    return (
        env.get(made("exact"), f"{_PREFIX}METRICS_ENDPOINT")
        or env.get(made("base"), f"{_PREFIX}ENDPOINT")
        or made("option")(_DEFAULTS[protocol])
    )


def _tls(env: _Variables) -> TlsOptions:
    tls = TlsOptions(
        ca_file=env.read("CERTIFICATE", Path),
        cert_file=env.read("CLIENT_CERTIFICATE", Path),
        key_file=env.read("CLIENT_KEY", Path),
    )
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "CLIENT_KEY" if tls.cert_file else "CLIENT_CERTIFICATE"
        raise PermanentError(
            f"the variable {_PREFIX}{missing} is missing: a certificate and its key go together"
        )
    return tls


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
    if text == "http/json":
        raise ValueError(
            "asks for http/json, which podgpu doesn't speak: set http/protobuf or grpc"
        )
    return cast("Protocol", _one_of(text, "grpc", "http/protobuf"))


def _compression(text: str) -> Compression:
    return cast("Compression", _one_of(text.lower(), "gzip", "none"))


def _flag(text: str) -> bool:
    return _one_of(text.lower(), "true", "false") == "true"


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
    for name, value in headers.pairs(text):
        if flaw := headers.flaw(name, value):
            raise ValueError(f"has a header {line(name, 60)!r} that {flaw}")
        found[name] = value
    return found


def _attributes(text: str) -> dict[str, str]:
    return dict(headers.pairs(text))


def _one_of(text: str, *words: str) -> str:
    if text not in words:
        raise ValueError(f"is {line(text, 60)!r}: it has to be {' or '.join(words)}")
    return text
