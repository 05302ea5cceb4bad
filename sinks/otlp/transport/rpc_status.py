"""Reads google.rpc.Status, in which receivers say why they refuse a message."""

from dataclasses import dataclass
from typing import Any, Final

from pipeline.net.protobuf import DecodeError, Schema

_RETRY_INFO: Final = "google.rpc.RetryInfo"
_NS: Final = 1e-9
_SCHEMA: Final = Schema.load_from_package("sinks.otlp.transport", "status.binpb")


@dataclass(frozen=True, slots=True)
class Status:
    """What a receiver said.

    Attributes:
        message: for developers, as it came; empty without one.
        retry: seconds after which it wants to be tried again; None if it doesn't say that it does.
    """

    message: str
    retry: float | None


NOTHING: Final = Status("", None)


def read_status(data: bytes) -> Status:
    """Return what an encoded google.rpc.Status says; nothing at all where it isn't one."""
    if not data:
        return NOTHING
    try:
        status: Any = _SCHEMA.message("podgpu.otlp.Status").FromString(data)
        retry = None
        for detail in status.details:
            if detail.type_url.rpartition("/")[2] == _RETRY_INFO:
                info = _SCHEMA.message("podgpu.otlp.RetryInfo").FromString(detail.value)
                delay = info.retry_delay.seconds + info.retry_delay.nanos * _NS
                retry = max(float(delay), 0.0)
    except DecodeError:
        return NOTHING
    return Status(status.message, retry)
