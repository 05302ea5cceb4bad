"""Decode google.rpc.Status, with which receivers explain why they refuse a message."""

from dataclasses import dataclass
from typing import Any, Final

from pipeline.net.protobuf_schema import DecodeError, Schema

_RETRY_INFO: Final = "google.rpc.RetryInfo"
_NS: Final = 1e-9
_SCHEMA: Final = Schema.load_from_package("sinks.otlp.transport", "status.binpb")


@dataclass(frozen=True, slots=True)
class Status:
    """Message and retry delay of a google.rpc.Status.

    Attributes:
        message: for developers, as received; may be empty.
        retry: seconds after which the receiver allows a retry; None without RetryInfo.
    """

    message: str
    retry: float | None


EMPTY: Final = Status("", None)


def read_status(data: bytes) -> Status:
    """Decode a google.rpc.Status; return an empty status if the data is not one."""
    if not data:
        return EMPTY
    try:
        status: Any = _SCHEMA.message("podgpu.otlp.Status").FromString(data)
        retry = None
        for detail in status.details:
            if detail.type_url.rpartition("/")[2] == _RETRY_INFO:
                info = _SCHEMA.message("podgpu.otlp.RetryInfo").FromString(detail.value)
                delay = info.retry_delay.seconds + info.retry_delay.nanos * _NS
                retry = max(float(delay), 0.0)
    except DecodeError:
        return EMPTY
    return Status(status.message, retry)
