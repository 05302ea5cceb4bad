"""A request to an API server, and the RBAC permission that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TIMEOUT: Final = 60.0
"""Seconds for one request; a stream is not limited."""


@dataclass(frozen=True, slots=True)
class RequestedResource:
    """The resource that a path names.

    Attributes:
        group: name of the API group; empty for the core group.
        resource: name of the resource in plural, as in RBAC rules.
        namespace: name of the namespace; empty for all namespaces and for cluster resources.
        name: name of one object; empty for a collection.
    """

    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request; it can be sent more than once.

    Attributes:
        method: GET, PATCH or POST.
        path: path of a resource.
        query: query parameters, not escaped yet.
        changes: for PATCH, a JSON merge patch; for POST, the object; None for GET.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, object] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the request's body needs; empty without a body."""
        if self.changes is None:
            return {}
        kind = "merge-patch+json" if self.method == "PATCH" else "json"
        return {"Content-Type": f"application/{kind}"}

    @property
    def target(self) -> RequestedResource:
        """The resource that the path names: `/api/v1/...` or `/apis/GROUP/VERSION/...`."""
        root, *parts = self.path.strip("/").split("/")
        group = parts.pop(0) if root == "apis" and parts else ""
        del parts[:1]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace = parts[1]
            del parts[:2]
        resource, name = (*parts, "", "")[:2]
        return RequestedResource(group, resource, namespace, name)

    @property
    def verb(self) -> str:
        """The RBAC verb of the request."""
        if self.method != "GET":
            return "patch" if self.method == "PATCH" else "create"
        if self.target.name:
            return "get"
        return "watch" if self.query.get("watch") == "true" else "list"
