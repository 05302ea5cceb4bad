"""Options of the sink `otlp`.

An option that is None is not configured. Then the environment variables `OTEL_EXPORTER_OTLP_*`
apply, and after them the default.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration
from pipeline.delivery.options import QueueOptions, RetryOptions
from sinks.otlp.transport import endpoints

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]
Compression: TypeAlias = Literal["gzip", "none"]
Names: TypeAlias = Literal["semconv", "dcgm"]
Temporality: TypeAlias = Literal["cumulative", "delta", "lowmemory"]


_MIN_TELEMETRY_INTERVAL = 1.0
"""Minimum of `telemetry_interval`, in seconds."""


_HEADER_NAME: Final = re.compile(r"[a-z0-9._-]+")
_RESERVED: Final = frozenset(
    [
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"),
        *("transfer-encoding", "user-agent"),
    ]
)
"""Headers that podgpu or the connection sets."""


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """TLS for the connection to the receiver. Changed files are loaded again."""

    ca_file: Annotated[
        Path | None, Doc("CA certificates to verify the receiver with; default: the system's.")
    ] = None
    cert_file: Annotated[Path | None, Doc("podgpu's client certificate, for mutual TLS.")] = None
    key_file: Annotated[Path | None, Doc("Private key of cert_file.")] = None
    server_name: Annotated[
        str, Doc("Expected name in the receiver's certificate, if it is not the endpoint's.")
    ] = ""

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report a certificate without a key, or a key without a certificate."""
        if bool(self.cert_file) != bool(self.key_file):
            missing = "key_file" if self.cert_file else "cert_file"
            yield missing, "cert_file and key_file belong together: set both"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `otlp`: the receiver, and what to send."""

    endpoint: Annotated[
        str | None,
        Doc("URL of the receiver, such as http://collector:4317; https for TLS."),
    ] = None
    protocol: Annotated[Protocol | None, Doc("Protocol of the receiver.")] = None
    names: Annotated[
        Names,
        Doc("Metric names: OpenTelemetry's semantic conventions where they have one, or DCGM's."),
    ] = "semconv"
    containers: Annotated[
        bool,
        Doc("Whether readings of a device with one holder are sent in that container's resource."),
    ] = True
    logs: Annotated[
        bool,
        Doc("Whether to send log records too: ended holdings and XID errors."),
    ] = True
    resource: Annotated[dict[str, str], Doc("Attributes that are added to every resource.")] = {}
    headers: Annotated[
        dict[str, str], Doc("Headers of every request, for example for authentication.")
    ] = {}
    bearer_token_file: Annotated[
        Path | None,
        Doc("File with a token for the header Authorization; read again when it changes."),
    ] = None
    tls: Annotated[TlsOptions, Doc("TLS options.")] = TlsOptions()
    compression: Annotated[Compression | None, Doc("Compression of messages.")] = None
    timeout: Annotated[
        Duration | None,
        AtLeast("100ms"),
        AtMost("10m"),
        Doc("Time limit for a request."),
    ] = None
    temporality: Annotated[
        Temporality | None,
        Doc("Whether counters are sent as cumulative totals or as deltas."),
    ] = None
    max_message_size: Annotated[
        ByteSize,
        AtLeast("64KiB"),
        AtMost("64MiB"),
        Doc("Maximum size of a message before compression; gRPC's usual limit is 4 MiB."),
    ] = ByteSize.parse("1MiB")
    telemetry_interval: Annotated[
        Duration, Doc("How often podgpu's own metrics are sent with the readings; 0s for never.")
    ] = Duration.parse("60s")
    queue: Annotated[QueueOptions, Doc("Where data waits while the receiver accepts none.")] = (
        QueueOptions()
    )
    retry: Annotated[RetryOptions, Doc("How long to wait before a retry.")] = RetryOptions()

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """Report problems that no variable can fix. Messages never contain a header's value."""
        yield from self._endpoint_problems()
        for name, value in self.headers.items():
            if flaw := header_problem(name, value):
                yield ("headers", name), flaw
        if len({name.lower() for name in self.headers}) < len(self.headers):
            yield "headers", "a header name occurs twice; upper and lower case are the same"
        if self.bearer_token_file and "authorization" in map(str.lower, self.headers):
            yield "bearer_token_file", "headers sets authorization too: set only one of the two"
        for name in self.resource:
            if not name.strip():
                yield ("resource", name), "is not a valid attribute name: it must not be blank"
        if 0 < self.telemetry_interval < _MIN_TELEMETRY_INTERVAL:
            text = f"is {self.telemetry_interval}: it must be at least 1s, or 0s for never"
            yield "telemetry_interval", text
        if self.max_message_size > self.queue.max_size:
            text = f"is more than queue.max_size ({self.queue.max_size}), but the queue must hold"
            yield "max_message_size", f"{text} a message: lower it, or raise queue.max_size"
        if self.retry.max < self.retry.initial:
            text = f"is less than retry.initial ({self.retry.initial}): raise it, or lower"
            yield ("retry", "max"), f"{text} retry.initial"

    def _endpoint_problems(self) -> Iterable[tuple[str, str]]:
        if self.endpoint is None:
            return
        try:
            parsed = self._parse_endpoint(self.endpoint)
        except ValueError as error:
            yield "endpoint", str(error)
            return
        if (
            not parsed.secure
            and self.endpoint.lower().startswith("http:")
            and self.tls != TlsOptions()
        ):
            yield "tls", "the endpoint does not use TLS, so this has no effect: use https"

    def _parse_endpoint(self, endpoint: str) -> endpoints.Endpoint:
        if self.protocol == "http/protobuf":
            return endpoints.http_endpoint(endpoint, "option")
        try:
            return endpoints.grpc_endpoint(endpoint)
        except ValueError:
            # The variables choose the protocol, and a URL is valid for both.
            if self.protocol is None and endpoint.lower().startswith(("http:", "https:")):
                return endpoints.http_endpoint(endpoint, "option")
            raise

    def exclusive(self) -> Iterable[str]:
        """Return the resources that only one sink may use: the folder of the queue."""
        return self.queue.exclusive()


def header_problem(name: str, value: str) -> str:
    """Return what is wrong with a header and how to fix it, without its value; empty if valid."""
    lowered = name.lower()
    if not _HEADER_NAME.fullmatch(lowered):
        return "is not a valid header name: use letters, digits, - _ and ."
    if lowered in _RESERVED or lowered.startswith("grpc-"):
        return "is set by podgpu itself: remove it"
    if lowered.endswith("-bin"):
        return "has a binary value in gRPC, which can't be configured here: remove it"
    if not value or not (value.isascii() and value.isprintable()) or value != value.strip():
        return "has an invalid value: it must be printable ASCII without blanks around it"
    return ""
