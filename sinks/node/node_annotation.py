"""The annotation of the Node on the API server."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.telemetry import Meter
from pipeline.component.contracts import KubeApi
from pipeline.kube.api_sink import counted
from pipeline.kube.json_access import as_dict, parsed_object

_ATTEMPTS: Final = 4
_KIB: Final = 1024


class NodeAnnotation:
    """Reads and writes the annotation, and counts its requests.

    Args:
        node: name of the Node.
        key: key of the annotation.
        meter: meter of the sink.

    Attributes:
        removal: the kubectl command that removes the annotation, for messages.
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
        """Return the annotation's value; None if the annotation does not exist.

        Raises:
            ApiError: the server refused the request, or could not be reached.
            TransientError: the response is not a Node.
        """
        try:
            return self._value(await counted(self._meter, "get", api.get(self._path, {})))
        except ApiError as error:
            raise self._error_with_fix(error) from error

    def _value(self, body: bytes) -> str | None:
        node = parsed_object(body)
        if node.get("kind", "Node") != "Node" or "metadata" not in node:
            raise TransientError(
                f"{self._path}: the response is not a Node; check that the address is that of an "
                "API server and that no proxy responds in its place"
            )
        value = as_dict(as_dict(node["metadata"]).get("annotations")).get(self._key)
        return value if isinstance(value, str) else None

    async def write(self, api: KubeApi, value: str | None) -> None:
        """Set the annotation's value, whatever the present value is; None removes the annotation.

        Raises:
            ApiError: the server refused the request, or could not be reached. Unless the status is
                4xx, the change may have been made.
            TransientError: the response is not a Node, or does not contain the change.
        """
        # Without a resourceVersion, changes of other programs to the Node cause no conflict.
        changes = {"metadata": {"annotations": {self._key: value}}}
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                body = await counted(self._meter, "patch", api.patch(self._path, changes))
            except ApiError as error:
                if error.status == HTTPStatus.CONFLICT and attempts_left:
                    continue
                raise self._error_with_fix(error, value) from error
            if self._value(body) != value:
                raise TransientError(
                    f"{self}: the server accepted the change, but its response does not contain "
                    "it; check which admission webhook or policy changes annotations of Nodes"
                )
            return

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
