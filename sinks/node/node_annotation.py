"""One annotation of one Node, as the API server has it."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.telemetry import Meter
from pipeline.component.contracts import KubeApi
from pipeline.kube.json_access import as_dict

_TRIES: Final = 4
_KIB: Final = 1024


class NodeAnnotation:
    """Reads and writes the annotation, and counts the requests that this takes.

    Args:
        node: the Node's name.
        key: the annotation's.
        meter: the sink's.

    Attributes:
        removal: the command that takes the annotation away, for people.
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
        """Return the value; None where there is no such annotation.

        Raises:
            ApiError: the server refused, or couldn't be reached.
            TransientError: what it sent is no Node.
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
                f"{self._path}: the server sent no Node; "
                "see that its address is an API server's and nothing in between answers for it"
            )
        value = as_dict(as_dict(node["metadata"]).get("annotations")).get(self._key)
        return value if isinstance(value, str) else None

    async def write(self, api: KubeApi, value: str | None) -> None:
        """Set the value, whatever is there now; None takes the annotation away.

        Raises:
            ApiError: the server refused, or couldn't be reached. Unless it says that the request
                was wrong (4xx), the change may be made all the same.
            TransientError: what it sent back is no Node, or one without the change.
        """
        # Without a resourceVersion no other writer of the Node can make this fail.
        changes = {"metadata": {"annotations": {self._key: value}}}
        for last in (*[False] * (_TRIES - 1), True):
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
                    f"{self}: the server took the change, and the Node that it sent back doesn't "
                    "have it; see which admission webhook or policy changes annotations of Nodes"
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
                "node: has to be the name that kubectl get nodes shows: in a pod write "
                "node: ${NODE_NAME:-} and set NODE_NAME from spec.nodeName"
            )
        elif error.status == HTTPStatus.UNPROCESSABLE_ENTITY and value is not None:
            size = -(-len(value.encode()) // _KIB)
            text = (
                f"{self} is refused ({error}); all annotations of a Node together may have "
                f"256 KiB, and this one has {size}: see what the others take"
            )
        return ApiError(
            text, status=error.status, reason=error.reason, retry_after=error.retry_after
        )
