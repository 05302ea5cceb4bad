"""A request to an API server, and what of RBAC it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names.

    Attributes:
        group: the API group; empty for the core group.
        resource: in the plural, as RBAC rules have it.
        namespace: empty for what is in none, or for all namespaces.
        name: of one object; empty for a collection.
    """

    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the server; may be asked again.

    Attributes:
        method: GET, PATCH or POST.
        path: of a resource.
        query: parameters, not yet escaped.
        changes: of a PATCH, a JSON merge patch; of a POST, the object.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, object] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What the request's own headers are."""
        if self.changes is None:
            return {}
        kind = "merge-patch+json" if self.method == "PATCH" else "json"
        return {"Content-Type": f"application/{kind}"}

    @property
    def target(self) -> Target:
        """What the path names: `/api/v1/...` or `/apis/GROUP/VERSION/...`."""
        root, *parts = self.path.strip("/").split("/")
        group = parts.pop(0) if root == "apis" and parts else ""
        del parts[:1]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace = parts[1]
            del parts[:2]
        resource, name = (*parts, "", "")[:2]
        return Target(group, resource, namespace, name)

    @property
    def verb(self) -> str:
        """The verb that RBAC has for it."""
        if self.method != "GET":
            return "patch" if self.method == "PATCH" else "create"
        if self.target.name:
            return "get"
        return "watch" if self.query.get("watch") == "true" else "list"
