"""Service accounts with their permissions and tokens, and kubeconfigs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kube.api import Api, Object, path

SHORTEST = 600
"""The shortest lifetime of a token that the API server accepts, in seconds."""

_GROUP = "rbac.authorization.k8s.io"
_OURS = "podgpu-e2e"
"""A label."""


def rule(
    resources: Iterable[str], verbs: Iterable[str] = ("get", "list", "watch"), group: str = ""
) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def service_account(
    api: Api, name: str, rules: Iterable[Object], namespace: str = "default"
) -> None:
    """Create a service account with these rules in all namespaces."""
    add_namespace(api, namespace)
    api.create({"kind": "ServiceAccount", "metadata": _meta(name, namespace)})
    whole = f"{namespace}-{name}"
    api.create({"kind": "ClusterRole", "metadata": _meta(whole), "rules": list(rules)})
    api.create(
        {
            "kind": "ClusterRoleBinding",
            "metadata": _meta(whole),
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": whole},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
    )


def _meta(name: str, namespace: str | None = None) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "labels": {_OURS: "yes"}, **place}


def allow(
    api: Api, name: str, rules: Iterable[Object], within: str, namespace: str = "default"
) -> None:
    """Give a service account further rules in one namespace."""
    add_namespace(api, within)
    whole = f"{namespace}-{name}"
    api.create({"kind": "Role", "metadata": _meta(whole, within), "rules": list(rules)})
    api.create(
        {
            "kind": "RoleBinding",
            "metadata": _meta(whole, within),
            "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": whole},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
    )


def set_rules(api: Api, name: str, rules: Iterable[Object], namespace: str = "default") -> None:
    """Replace the rules of a service account."""
    api.patch("ClusterRole", f"{namespace}-{name}", {"rules": list(rules)})


def remove_service_account(api: Api, name: str, namespace: str = "default") -> None:
    """Remove a service account and its rules, which makes its tokens invalid."""
    whole = f"{namespace}-{name}"
    api.delete("ClusterRoleBinding", whole)
    api.delete("ClusterRole", whole)
    api.delete("ServiceAccount", name, namespace)


def remove_all(api: Api) -> None:
    """Remove all service accounts that were created by this module."""
    for kind in ("RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole", "ServiceAccount"):
        for found in api.list(kind, labelSelector=_OURS):
            api.delete(kind, found["metadata"]["name"], found["metadata"].get("namespace"))


def token(
    api: Api,
    name: str,
    namespace: str = "default",
    seconds: int = 3600,
    *,
    pod: Object | None = None,
) -> str:
    """Return a new token of a service account with this lifetime in seconds.

    A token of a pod becomes invalid with the pod, and contains the pod's node.
    """
    spec: Object = {"expirationSeconds": seconds}
    if pod is not None:
        names = {key: pod["metadata"][key] for key in ("name", "uid")}
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **names}
    made = api.request(
        "POST",
        path("ServiceAccount", namespace, name, "token"),
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": spec,
        },
    )
    text: str = made["status"]["token"]
    return text


def account(folder: Path, api: Api, name: str, rules: Iterable[Object]) -> Path:
    """Create a service account with these rules, and write a kubeconfig with its token."""
    service_account(api, name, rules)
    return kubeconfig(folder / f"{name}.yaml", api, token=token(api, name, seconds=SHORTEST))


def add_namespace(api: Api, name: str) -> None:
    """Create a namespace unless it exists."""
    if not api.find("Namespace", name):
        api.create({"kind": "Namespace", "metadata": {"name": name}})


def remove_namespace(api: Api, name: str) -> None:
    """Remove an empty namespace; the namespace controller does not run here."""
    api.delete("Namespace", name)
    left = api.find("Namespace", name)
    if left:
        left["spec"] = {"finalizers": []}
        api.request("PUT", path("Namespace", None, name, "finalize"), left)


def kubeconfig(
    file: Path, api: Api, token_file: Path | None = None, *, token: str | None = None
) -> Path:
    """Write a kubeconfig that contains a token or the path of a token file.

    Without either, it contains the token of `api`.
    """
    user: dict[str, Any] = (
        {"tokenFile": str(token_file)} if token_file else {"token": token or api.token}
    )
    cluster = {"server": api.server, "certificate-authority": str(api.authority)}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "node", "cluster": cluster}],
                "users": [{"name": "user", "user": user}],
                "contexts": [{"name": "only", "context": {"cluster": "node", "user": "user"}}],
                "current-context": "only",
            }
        )
    )
    return file
