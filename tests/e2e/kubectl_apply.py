"""Apply and delete objects like `kubectl apply` and `kubectl delete`, with plain API requests."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.manifests import Object
from tests.e2e.kube.api import Api, ApiError
from tests.e2e.processes import wait_until

_APPLY = "application/apply-patch+yaml"

OWN = {"Event", "Lease", "Pod", "ControllerRevision", "EndpointSlice", "Endpoints", "IPAddress"}
"""Kinds with objects that the cluster creates and deletes by itself."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that the API server knows."""

    name: str
    version: str
    """Group and version."""
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str = "") -> str:
        within = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        root = "/apis" if "/" in self.version else "/api"
        return f"{root}/{self.version}{within}/{self.plural}" + (f"/{name}" if name else "")


class ObjectApplier:
    """Requests to an API server for objects of any kind."""

    def __init__(self, api: Api) -> None:
        self._api = api
        groups = api.request("GET", "/apis")["groups"]
        versions = ["v1", *(each["preferredVersion"]["groupVersion"] for each in groups)]
        self._kinds = {
            (kind.version, kind.name): kind for version in versions for kind in self._of(version)
        }

    def _of(self, version: str) -> Iterable[Kind]:
        root = "/apis" if "/" in version else "/api"
        for each in self._api.request("GET", f"{root}/{version}")["resources"]:
            if "/" not in each["name"] and "list" in each["verbs"]:
                yield Kind(each["kind"], version, each["name"], each["namespaced"])

    def _place(self, made: Mapping[str, Any]) -> str:
        meta = made["metadata"]
        kind = self._kinds[made["apiVersion"], made["kind"]]
        return kind.path(meta.get("namespace"), meta["name"])

    def apply(self, objects: Iterable[Object]) -> None:
        """Create or update objects."""
        for made in objects:
            where = f"{self._place(made)}?fieldManager=test&force=true&fieldValidation=Strict"
            self._api.request("PATCH", where, made, _APPLY)

    def delete(self, objects: Iterable[Object], seconds: float = 60) -> None:
        """Delete objects in reverse order, and wait until they are gone."""
        for made in reversed(list(objects)):
            self._api.request("DELETE", self._place(made), {"propagationPolicy": "Foreground"})
            wait_until(
                lambda made=made: not self._there(made),  # type: ignore[misc]
                f"{made['kind']} {made['metadata']['name']} is gone",
                seconds=seconds,
            )

    def _there(self, made: Object) -> bool:
        try:
            self._api.request("GET", self._place(made))
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def everything(self) -> set[str]:
        """Return the names of all objects except those of the kinds in `OWN`."""
        return {
            f"{kind.name} {each['metadata'].get('namespace', '-')}/{each['metadata']['name']}"
            for kind in self._kinds.values()
            if kind.name not in OWN
            for each in self._api.request("GET", kind.path())["items"]
        }
