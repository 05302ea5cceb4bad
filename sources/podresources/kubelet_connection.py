"""Find a pod-resources socket, and send requests to it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from config.value_types import ByteSize, Duration
from pipeline.base.safe_text import line
from pipeline.net.grpc_library import (
    AioRpcError,
    StatusCode,
    check_descriptors,
    insecure_channel,
    keep_library,
)

Result: TypeAlias = Literal[
    "ok", "unimplemented", "unreachable", "rejected", "timeout", "too_large", "failed"
]
"""Result of a request.

* `unimplemented`: the kubelet does not have the method, or the method is disabled
* `unreachable`: no connection to the kubelet is possible
* `rejected`: the kubelet's rate limit refused the request
* `failed`: another error
"""


class KubeletError(Exception):
    """A request failed. The text names the socket, the reason and the fix.

    Args:
        result: the result of the request.
        text: the text, for people and logs.
        reason: text that is equal for equal errors; by default `text`.

    Attributes:
        dedup_key: two errors with equal keys need to be logged only once.
    """

    def __init__(self, result: Result, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.result = result
        self.dedup_key: tuple[str, str] = (result, reason or text)


_ABSENT = (
    "no such socket; mount the kubelet's pod-resources folder from the host, "
    "and set `sockets` if the kubelet has another root"
)

SocketId: TypeAlias = tuple[int, int, int] | str
"""Inode, device and time of the last change (ns, wall clock) of a socket; or a text why there is
no socket."""


def find_socket(path: Path) -> SocketId:
    """Return the identity of the socket at a path, or a text why there is none. Blocking."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return f"{path}: {_ABSENT}"
    except PermissionError:
        return f"{path}: permission denied to uid {os.geteuid()}"
    except OSError as error:
        return f"{path}: {os.strerror(error.errno or 0).lower()}"
    if not stat.S_ISSOCK(found.st_mode):
        return f"{path}: is not a socket"
    return found.st_ino, found.st_dev, found.st_ctime_ns


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
    """A connection to the kubelet. It remembers which methods the kubelet lacks.

    Args:
        path: path of the socket.
        timeout: time limit for one request.
        count: function that counts requests; gets method and result of each request.
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
        self._offers_allocatable = True
        # Without this limit, a silent connection stays open after its channel is closed.
        backoff = ("grpc.min_reconnect_backoff_ms", max(round(timeout * 1000), 1))
        self._channel = insecure_channel(f"unix:{quote(str(path))}", [*_OPTIONS, backoff])

    async def close(self) -> None:
        """Close the connection, and cancel requests in progress."""
        await self._channel.close()

    async def list(self) -> tuple[str, bytes]:
        """Request the devices of all pods; return the method's name and the encoded response.

        Raises:
            KubeletError: the request failed.
        """
        try:
            return f"{self._version} List", await self._call(self._version, "List")
        except KubeletError as error:
            if error.result != "unimplemented" or self._version != "v1":
                raise
        # Kubernetes before 1.20 has only this version, and no other method.
        response = await self._call("v1alpha1", "List")
        self._version, self._offers_allocatable = "v1alpha1", False
        return "v1alpha1 List", response

    async def allocatable(self) -> bytes | None:
        """Return the encoded allocatable devices; None if the kubelet lacks the method.

        Raises:
            KubeletError: the request failed.
        """
        if not self._offers_allocatable:
            return None
        try:
            return await self._call("v1", "GetAllocatableResources")
        except KubeletError as error:
            if error.result != "unimplemented":
                raise
        self._offers_allocatable = False
        return None

    async def _call(self, version: str, method: str) -> bytes:
        call = self._channel.unary_unary(f"/{version}.{_SERVICE}/{method}")
        try:
            response: bytes = await call(b"", timeout=float(self._timeout))
        except AioRpcError as error:
            result, code, details = _result(error), error.code().name, error.details() or ""
            self._count(f"{version}/{method}", result)
            text = _TEXTS.get(result, "the kubelet responded to {method} with {code}: {details}")
            text = text.format(
                method=method,
                timeout=self._timeout,
                code=code,
                details=line(details),
                # The library's text ends with that of the kernel.
                reason=line(details.rpartition(": ")[2].lower()),
            )
            # The details are the server's text, which may vary each time.
            raise KubeletError(result, f"{self._path}: {text}", f"{method} {code}") from None
        self._count(f"{version}/{method}", "ok")
        return response


def _result(error: Any) -> Result:
    code, details = error.code(), error.details() or ""
    if code in _RESULTS:
        return _RESULTS[code]
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return "too_large" if "larger than max" in details else "rejected"
    # The kubelet returns UNKNOWN for all of its errors.
    if code is StatusCode.UNKNOWN and "disabled" in details:
        return "unimplemented"
    return "failed"
