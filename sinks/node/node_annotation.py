"""The annotation of the Node on the API server."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.telemetry import Meter
from pipeline.component.contracts import KubeApi
from pipeline.kube.json_access import as_dict

_ATTEMPTS: Final = 4
_KIB: Final = 1024


class NodeAnnotation:
    """Reads and writes the annotation, and counts its requests.

    Args:
        node: name of the Node.
        key: key of the annotation.
        meter: meter of the sink.

    Attributes:
        removal: the command that removes the annotation, for people.
    """

    def __init__(self, node: str, key: str, meter: Meter) -> None:
        self._node = node
        self._key = key
        self._meter = meter
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self.removal = f"kubectl annotate node {node} {key}-"

    def __str__(self) -> str:
        return f"the annotation {self._key} of the Node {self._node}"

    async def read(self, api: KubeApi) -> str | None:
        """Return the value; None if the annotation does not exist.

        Raises:
            ApiError: the server refused the request, or could not be reached.
            TransientError: the response is not a Node.
        """
        try:
            body = await api.get(self._path, {})
        except ApiError as error:
            self._count("get", error)
            raise self._error_with_fix(error) from error
        except BaseException:
            self._count("get", None)
            raise
        self._meter.add("podgpu_sink_requests_total", method="get", result="ok")
        return self._value(body)

    def _value(self, body: bytes) -> str | None:
        try:
            node = as_dict(orjson.loads(body))
        except orjson.JSONDecodeError:
            node = {}
        if node.get("kind", "Node") != "Node" or "metadata" not in node:
            raise TransientError(
                f"{self._path}: the response is not a Node; check that the address is that of an "
                "API server and that no proxy answers in its place"
            )
        value = as_dict(as_dict(node["metadata"]).get("annotations")).get(self._key)
        return value if isinstance(value, str) else None

    async def write(self, api: KubeApi, value: str | None) -> None:
        """Set the value, whatever it is now; None removes the annotation.

        Raises:
            ApiError: the server refused the request, or could not be reached. Unless the status is
                4xx, the change may have been made.
            TransientError: the response is not a Node, or does not contain the change.
        """
        # Without a resourceVersion, changes of other programs to the Node cause no conflict.
        changes = {"metadata": {"annotations": {self._key: value}}}
        for last in (*[False] * (_ATTEMPTS - 1), True):
            try:
                body = await api.patch(self._path, changes)
            except ApiError as error:
                self._count("patch", error)
                if error.status == HTTPStatus.CONFLICT and not last:
                    continue
                raise self._error_with_fix(error, value) from error
            except BaseException:
                self._count("patch", None)
                raise
            self._meter.add("podgpu_sink_requests_total", method="patch", result="ok")
            if self._value(body) != value:
                raise TransientError(
                    f"{self}: the server accepted the change, but its response does not contain "
                    "it; check which admission webhook or policy changes annotations of Nodes"
                )
            return

    def _count(self, method: str, error: ApiError | None) -> None:
        code = error.status if error is not None else 0
        result = str(code) if code else "error"
        self._meter.add("podgpu_sink_requests_total", method=method, result=result)

    def _error_with_fix(self, error: ApiError, value: str | None = None) -> ApiError:
        text = str(error)
        if error.status == HTTPStatus.NOT_FOUND:
            text = (
                f"there is no Node {self._node} ({error}); "
                "set node: to a name that kubectl get nodes shows; in a pod set "
                "node: ${NODE_NAME:-} and NODE_NAME from spec.nodeName"
            )
        elif error.status == HTTPStatus.UNPROCESSABLE_ENTITY and value is not None:
            size = -(-len(value.encode()) // _KIB)
            text = (
                f"{self} was rejected ({error}); all annotations of a Node together are limited to "
                f"256 KiB, and this one has {size} KiB: check the size of the others"
            )
        return ApiError(
            text, status=error.status, reason=error.reason, retry_after=error.retry_after
        )
