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
"""Maximum size of a response. Plugins that offer GPU memory by the MiB need some MiB."""

_OPTIONS = [
    ("grpc.max_receive_message_length", int(MAX_RESPONSE_BYTES)),
    # The default is the socket's path, which strict servers refuse.
    ("grpc.default_authority", "localhost"),
    # A new connection must not inherit the reconnect delay of the previous one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
_LONGEST_PATH = 107  # limit of the kernel
_SERVICE = "PodResourcesLister"
_RESULTS: dict[StatusCode, Result] = {
    StatusCode.UNIMPLEMENTED: "unimplemented",
    StatusCode.UNAVAILABLE: "unreachable",
    StatusCode.DEADLINE_EXCEEDED: "timeout",
}
_TEXTS: dict[Result, str] = {
    "unreachable": "the kubelet is unreachable: {reason}; check that it runs",
    "timeout": "the kubelet did not respond to {method} within {timeout}",
    "too_large": f"the response to {{method}} is larger than the limit of {MAX_RESPONSE_BYTES}; "
    "configure the device plugin to offer larger units",
    "unimplemented": "{method} is not implemented there; check that it is the kubelet's socket",
}


class Kubelet:
    """A connection. It remembers which methods the kubelet does not offer.

    Args:
        path: the socket.
        timeout: time limit of a request.
        count: receives method and result of each request.
    """

    def __init__(self, path: Path, timeout: Duration, count: Callable[[str, Result], None]) -> None:
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise KubeletError(
                "unreachable",
                f"{path}: is longer than {_LONGEST_PATH} bytes, the limit for a socket's path; "
                "mount its folder elsewhere",
            )
        try:
            check_descriptors()
            keep_library()
        except OSError as error:
            text = f"{path}: cannot connect: {error.strerror}"
            raise KubeletError(
                "unreachable", f"{text}; raise the limit of open files (ulimit -n)"
            ) from error
        self._path = path
        self._timeout = timeout
        self._count = count
        self._version = "v1"
        self._unsupported: set[str] = set()
        # Without this limit, a silent connection stays open after its channel is closed.
        backoff = ("grpc.min_reconnect_backoff_ms", max(round(timeout * 1000), 1))
        self._channel = insecure_channel(f"unix:{quote(str(path))}", [*_OPTIONS, backoff])

    async def close(self) -> None:
        """Close the connection; cancel requests in progress."""
        await self._channel.close()

    @property
    def supports_get(self) -> bool:
        """Whether `get` may work; False once the kubelet did not offer it."""
        return "Get" not in self._unsupported

    async def list(self) -> tuple[str, bytes]:
        """Return the devices of all pods: the method, and its encoded response.

        Raises:
            KubeletError: the request failed.
        """
        try:
            return f"{self._version} List", await self._call(self._version, "List")
        except KubeletError as error:
            if error.result != "unimplemented" or self._version != "v1":
                raise
        # Kubernetes before 1.20 has only this version, and none of the other methods.
        response = await self._call("v1alpha1", "List")
        self._version = "v1alpha1"
        self._unsupported.update(("GetAllocatableResources", "Get"))
        return "v1alpha1 List", response

    async def allocatable(self) -> bytes | None:
        """Return the allocatable devices, encoded; None if the kubelet does not report them.

        Raises:
            KubeletError: the request failed.
        """
        return await self._optional("GetAllocatableResources", b"")

    async def get(self, request: bytes) -> bytes | None:
        """Return the devices of one pod, encoded; None without such a pod or method.

        Args:
            request: an encoded `GetPodResourcesRequest`.

        Raises:
            KubeletError: the request failed.
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
            response: bytes = await call(request, timeout=float(self._timeout))
        except AioRpcError as error:
            result = _result(error)
            self._count(f"{version}/{method}", result)
            # The details are the server's text, which may vary each time.
            reason = f"{method} {error.code().name}"
            raise KubeletError(result, self._text(result, method, error), reason) from None
        self._count(f"{version}/{method}", "ok")
        return response

    def _text(self, result: Result, method: str, error: Any) -> str:
        details = error.details() or ""
        text = _TEXTS.get(result, "the kubelet responded to {method} with {code}: {details}")
        return f"{self._path}: " + text.format(
            method=method,
            timeout=self._timeout,
            code=error.code().name,
            details=line(details),
            # The library's text ends with that of the kernel.
            reason=line(details.rpartition(": ")[2].lower()),
        )


def _result(error: Any) -> Result:
    code, details = error.code(), error.details() or ""
    if code in _RESULTS:
        return _RESULTS[code]
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return "too_large" if "larger than max" in details else "rejected"
    # The kubelet returns UNKNOWN for all of its errors.
    if code is StatusCode.UNKNOWN and "disabled" in details:
        return "unimplemented"
    if code is StatusCode.UNKNOWN and "not found" in details:
        return "absent"
    return "failed"
