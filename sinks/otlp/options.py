"""Options of the sink `otlp`.

What is left out comes from the variables `OTEL_EXPORTER_OTLP_*`, and else from the default: None
stands for "left out".
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration
from pipeline.delivery.options import QueueOptions, RetryOptions
from sinks.otlp.transport import endpoints, headers

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]
Compression: TypeAlias = Literal["gzip", "none"]
Names: TypeAlias = Literal["semconv", "dcgm"]
Temporality: TypeAlias = Literal["cumulative", "delta", "lowmemory"]


_OFTEN = 1.0
"""Seconds: podgpu's own metrics are not sent more often."""


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the receiver is checked, and how podgpu shows who it is. Changed files are read anew."""

    ca_file: Annotated[
        Path | None, Doc("Certificates to check the receiver with; none for the system's.")
    ] = None
    cert_file: Annotated[Path | None, Doc("podgpu's own certificate, for mutual TLS.")] = None
    key_file: Annotated[Path | None, Doc("The key of that certificate.")] = None
    server_name: Annotated[
        str, Doc("The name in the receiver's certificate, where that is not the endpoint's.")
    ] = ""

    def problems(self) -> Iterable[tuple[str, str]]:
        """A certificate is of use with its key alone."""
        if bool(self.cert_file) != bool(self.key_file):
            missing = "key_file" if self.cert_file else "cert_file"
            yield missing, "cert_file and key_file go together: give both"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where readings are pushed to, and how."""

    endpoint: Annotated[
        str | None,
        Doc("URL of the receiver, such as http://collector:4317; https for TLS."),
    ] = None
    protocol: Annotated[Protocol | None, Doc("What the receiver speaks.")] = None
    names: Annotated[
        Names,
        Doc("Names of the metrics: OpenTelemetry's conventions where they have one, or DCGM's."),
    ] = "semconv"
    containers: Annotated[
        bool,
        Doc("Whether readings of a device that one container holds stand in that one's resource."),
    ] = True
    logs: Annotated[
        bool,
        Doc("Whether log records of holdings that ended and of XID errors are sent too."),
    ] = True
    resource: Annotated[dict[str, str], Doc("Attributes that are added to every resource.")] = {}
    headers: Annotated[
        dict[str, str], Doc("Headers of every request, such as those that authenticate podgpu.")
    ] = {}
    bearer_token_file: Annotated[
        Path | None, Doc("File with a token for the header Authorization; read anew as it changes.")
    ] = None
    tls: Annotated[TlsOptions, Doc("How TLS is done.")] = TlsOptions()
    compression: Annotated[Compression | None, Doc("How messages are packed.")] = None
    timeout: Annotated[
        Duration | None,
        AtLeast("100ms"),
        AtMost("10m"),
        Doc("How long the receiver has to answer."),
    ] = None
    temporality: Annotated[
        Temporality | None,
        Doc("Whether counters are sent as they stand, or as what came on top since the last time."),
    ] = None
    max_message_size: Annotated[
        ByteSize,
        AtLeast("64KiB"),
        AtMost("64MiB"),
        Doc("The largest message, before it is packed; receivers for gRPC take 4 MiB unless told."),
    ] = ByteSize.parse("1MiB")
    telemetry_interval: Annotated[
        Duration, Doc("How often podgpu's own metrics are sent among the readings; 0s never does.")
    ] = Duration.parse("60s")
    queue: Annotated[QueueOptions, Doc("Where data waits while the receiver takes none.")] = (
        QueueOptions()
    )
    retry: Annotated[RetryOptions, Doc("How long to wait before data is sent again.")] = (
        RetryOptions()
    )

    def problems(self) -> Iterable[tuple[str | tuple[str, ...], str]]:
        """Say what is wrong whatever the variables say. No message repeats a header's value."""
        yield from self._about_endpoint()
        for name, value in self.headers.items():
            if flaw := headers.header_problem(name, value):
                yield ("headers", name), flaw
        if len({name.lower() for name in self.headers}) < len(self.headers):
            yield "headers", "a name stands twice: upper and lower case are the same"
        if self.bearer_token_file and "authorization" in map(str.lower, self.headers):
            yield "bearer_token_file", "there is a header authorization too: give one of the two"
        for name in self.resource:
            if not name.strip():
                yield ("resource", name), "is no name of an attribute"
        if 0 < self.telemetry_interval < _OFTEN:
            text = f"is {self.telemetry_interval}: it has to be 1s at least, or 0s for never"
            yield "telemetry_interval", text
        if self.max_message_size > self.queue.max_size:
            text = f"is more than queue.max_size ({self.queue.max_size}), which holds the message"
            yield "max_message_size", f"{text} too: lower it, or give the queue more space"
        if self.retry.max < self.retry.initial:
            yield ("retry", "max"), f"is less than retry.initial ({self.retry.initial})"

    def _about_endpoint(self) -> Iterable[tuple[str, str]]:
        if self.endpoint is None:
            return
        try:
            found = self._found(self.endpoint)
        except ValueError as error:
            yield "endpoint", str(error)
            return
        if (
            not found.secure
            and self.endpoint.lower().startswith("http:")
            and self.tls != TlsOptions()
        ):
            yield "tls", "the endpoint is without TLS, so this means nothing: write https"

    def _found(self, endpoint: str) -> endpoints.Endpoint:
        if self.protocol == "http/protobuf":
            return endpoints.http_endpoint(endpoint, "option")
        try:
            return endpoints.grpc_endpoint(endpoint)
        except ValueError:
            # Without a protocol here the variables choose it, and a URL may be for either.
            if self.protocol is None and endpoint.lower().startswith(("http:", "https:")):
                return endpoints.http_endpoint(endpoint, "option")
            raise

    def exclusive(self) -> Iterable[str]:
        """A queue on the disk has one owner."""
        return self.queue.exclusive()
