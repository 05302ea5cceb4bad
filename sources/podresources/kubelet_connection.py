"""A connection to a pod-resources socket."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from config.value_types import ByteSize, Duration
from pipeline.base.safe_text import line
from pipeline.net.grpc_client import (
    AioRpcError,
    StatusCode,
    check_descriptors,
    insecure_channel,
    keep_library,
)
from sources.podresources.errors import KubeletError, Result

MAX_RESPONSE_BYTES = ByteSize.parse("16MiB")
"""A larger answer is not taken. Plugins that hand out GPUs by the MiB bring them to some MiB."""

_OPTIONS = [
    ("grpc.max_receive_message_length", int(MAX_RESPONSE_BYTES)),
    # Else the socket's path, which strict servers refuse.
    ("grpc.default_authority", "localhost"),
    # A new connection must not inherit the pauses of the one before.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
_LONGEST_PATH = 107  # the kernel's
_SERVICE = "PodResourcesLister"


class Kubelet:
    """A connection, which remembers what the kubelet at its other end doesn't offer.

    Args:
        path: the socket.
        timeout: how long an answer may take.
        count: told of each request's method and result.
    """

    def __init__(self, path: Path, timeout: Duration, count: Callable[[str, Result], None]) -> None:
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise KubeletError(
                "unreachable",
                f"{path}: is longer than the {_LONGEST_PATH} bytes that a socket's path may have; "
                "mount its folder elsewhere",
            )
        try:
            check_descriptors()
            keep_library()
        except OSError as error:
            text = f"{path}: can't connect: {error.strerror}"
            raise KubeletError(
                "unreachable", f"{text}; let podgpu have more open files (ulimit -n)"
            ) from error
        self._path = path
        self._timeout = timeout
        self._count = count
        self._version = "v1"
        self._unsupported: set[str] = set()
        # A connection on which nobody says a word outlives its channel, unless this ends it.
        patience = ("grpc.min_reconnect_backoff_ms", max(round(timeout * 1000), 1))
        self._channel = insecure_channel(f"unix:{quote(str(path))}", [*_OPTIONS, patience])

    async def close(self) -> None:
        """Give the connection back; what is under way ends."""
        await self._channel.close()

    @property
    def supports_get(self) -> bool:
        """Whether `get` may work, as far as is known."""
        return "Get" not in self._unsupported

    async def list(self) -> tuple[str, bytes]:
        """Return what all pods hold: the method, and its encoded answer.

        Raises:
            KubeletError: there is no answer.
        """
        try:
            return f"{self._version} List", await self._call(self._version, "List")
        except KubeletError as error:
            if error.result != "unimplemented" or self._version != "v1":
                raise
        # Kubernetes before 1.20 has nothing else; it offers none of the other methods either.
        answer = await self._call("v1alpha1", "List")
        self._version = "v1alpha1"
        self._unsupported.update(("GetAllocatableResources", "Get"))
        return "v1alpha1 List", answer

    async def allocatable(self) -> bytes | None:
        """Return what the kubelet offers to pods, encoded; None if it doesn't tell.

        Raises:
            KubeletError: there is no answer.
        """
        return await self._optional("GetAllocatableResources", b"")

    async def get(self, request: bytes) -> bytes | None:
        """Return what one pod holds, encoded; None if there is no such pod or no such method.

        Args:
            request: an encoded `GetPodResourcesRequest`.

        Raises:
            KubeletError: there is no answer.
        """
        return await self._optional("Get", request)

    async def _optional(self, method: str, request: bytes) -> bytes | None:
        if method in self._unsupported:
            return None
        try:
            return await self._call("v1", method, request)
        except KubeletError as error:
            if error.result == "unimplemented":
                self._unsupported.add(method)
            elif error.result != "absent":
                raise
            return None

    async def _call(self, version: str, method: str, request: bytes = b"") -> bytes:
        call = self._channel.unary_unary(f"/{version}.{_SERVICE}/{method}")
        try:
            answer: bytes = await call(request, timeout=float(self._timeout))
        except AioRpcError as error:
            result = _result(error)
            self._count(f"{version}/{method}", result)
            # What stands in the details is the other side's, and may be another text each time.
            reason = f"{method} {error.code().name}"
            raise KubeletError(result, self._text(result, method, error), reason) from None
        self._count(f"{version}/{method}", "ok")
        return answer

    def _text(self, result: Result, method: str, error: Any) -> str:
        details = line(error.details() or "")
        match result:
            case "unreachable":
                # The library's words end with the kernel's.
                reason = line((error.details() or "").rpartition(": ")[2].lower())
                return f"{self._path}: the kubelet can't be reached: {reason}; does it run?"
            case "timeout":
                return f"{self._path}: the kubelet did not answer {method} within {self._timeout}"
            case "too_large":
                return (
                    f"{self._path}: the answer to {method} is larger than {MAX_RESPONSE_BYTES}, "
                    "the most that is taken; let the device plugin hand out larger units"
                )
            case "unimplemented":
                return f"{self._path}: nobody answers {method} there; is it the kubelet's socket?"
            case _:
                pass
        return f"{self._path}: the kubelet answers {method} with {error.code().name}: {details}"


def _result(error: Any) -> Result:
    code, details = error.code(), error.details() or ""
    match code:
        case StatusCode.UNIMPLEMENTED:
            return "unimplemented"
        case StatusCode.UNAVAILABLE:
            return "unreachable"
        case StatusCode.DEADLINE_EXCEEDED:
            return "timeout"
        case StatusCode.RESOURCE_EXHAUSTED:
            return "too_large" if "larger than max" in details else "rejected"
        # The kubelet has no codes of its own.
        case StatusCode.UNKNOWN if "disabled" in details:
            return "unimplemented"
        case StatusCode.UNKNOWN if "not found" in details:
            return "absent"
    return "failed"
