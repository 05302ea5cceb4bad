"""Requests to the API server, as JSON over HTTPS without a client library."""

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.e2e.processes import wait_until

Object = dict[str, Any]
"""An object in its JSON form."""

_VERSIONS = {
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
}
"""API versions of kinds outside the core group."""

_MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
"""A patch that merges lists by the names of their entries."""


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, content: Mapping[str, Any]) -> None:
        self.status = status
        self.reason = str(content.get("reason", ""))
        super().__init__(f"{status} {self.reason}: {content.get('message', '')}")


def version(kind: str) -> str:
    return _VERSIONS.get(kind, "v1")


def path(kind: str, namespace: str | None = None, name: str = "", sub: str = "") -> str:
    """Return the path of all objects of a kind, of one object, or of a subresource."""
    group = version(kind)
    plural = re.sub("ys$", "ies", kind.lower() + ("es" if kind.endswith("s") else "s"))
    parts = ["/apis" if "/" in group else "/api", group]
    parts += ["namespaces", namespace] if namespace else []
    return "/".join([*parts, plural, *filter(None, (name, sub))])


@dataclass(frozen=True, slots=True)
class Api:
    """The API server as one user sees it."""

    port: int
    authority: Path
    """The certificate to trust."""
    token: str

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def as_user(self, token: str) -> "Api":
        """Return the same server with another user's token."""
        return Api(self.port, self.authority, token)

    def request(
        self,
        method: str,
        where: str,
        body: object = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send a request and return the response; text if it is not JSON.

        Raises:
            ApiError: the server refuses the request.
            OSError: the server is unreachable.
        """
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            self.port,
            timeout=20,
            context=ssl.create_default_context(cafile=str(self.authority)),
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        try:
            connection.request(method, where, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            raw, kind = answer.read(), answer.getheader("Content-Type", "")
        except http.client.HTTPException as error:
            raise OSError(f"{method} {where}: {error!r}") from error
        finally:
            connection.close()
        content = json.loads(raw) if "json" in kind else raw.decode(errors="replace")
        if answer.status >= 400:
            raise ApiError(
                answer.status, content if isinstance(content, dict) else {"message": content}
            )
        return content

    def create(self, new: Mapping[str, Any]) -> Object:
        where = path(new["kind"], new["metadata"].get("namespace"))
        made: Object = self.request("POST", where, {"apiVersion": version(new["kind"]), **new})
        return made

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        found: Object = self.request("GET", path(kind, namespace, name))
        return found

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return an object; None if it does not exist."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: str, namespace: str | None = None, **selectors: str) -> list[Object]:
        """Return all objects of a kind; selectors are `labelSelector` and `fieldSelector`."""
        query = f"?{urlencode(selectors)}" if selectors else ""
        found: list[Object] = self.request("GET", path(kind, namespace) + query)["items"]
        return found

    def patch(
        self,
        kind: str,
        name: str,
        changes: Mapping[str, Any],
        namespace: str | None = None,
        sub: str = "",
    ) -> Object:
        """Merge changes into an object or its `status`; None removes a key."""
        changed: Object = self.request("PATCH", path(kind, namespace, name, sub), changes, _MERGE)
        return changed

    def delete(
        self, kind: str, name: str, namespace: str | None = None, grace: int | None = None
    ) -> None:
        """Delete an object if it exists; `grace` is the grace period of a pod in seconds, 0 for
        immediately."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.request("DELETE", path(kind, namespace, name), options)
        except ApiError as error:
            if error.status != 404:
                raise

    # Pods.

    def pod(self, name: str, namespace: str = "default") -> Object:
        return self.get("Pod", name, namespace)

    def wait_phase(self, name: str, *phases: str, namespace: str = "default") -> Object:
        """Wait until a pod is in one of these phases, and return it."""
        last: Object = {}

        def reached() -> bool:
            nonlocal last
            last = self.find("Pod", name, namespace) or {}
            return bool(last) and last["status"].get("phase") in phases

        try:
            wait_until(reached, f"{name} is {' or '.join(phases)}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(last.get('status'))}") from None
        return last

    def wait_gone(self, kind: str, name: str, namespace: str | None = None) -> None:
        wait_until(lambda: self.find(kind, name, namespace) is None, f"{kind} {name} is gone")
