"""Who may do what: service accounts, their rights, their tokens, and files that hold them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kube.api import Api, Object, path

SHORTEST = 600
"""Seconds; the API server gives no token for less."""

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
    """Make an account that may do this much, in all namespaces."""
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
    """Let an account do this much more, in one namespace."""
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
    """Change what an account may do."""
    api.patch("ClusterRole", f"{namespace}-{name}", {"rules": list(rules)})


def remove_service_account(api: Api, name: str, namespace: str = "default") -> None:
    """Remove it and its rights; its tokens are no longer taken."""
    whole = f"{namespace}-{name}"
    api.delete("ClusterRoleBinding", whole)
    api.delete("ClusterRole", whole)
    api.delete("ServiceAccount", name, namespace)


def remove_all(api: Api) -> None:
    """Remove every account that was made here."""
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
    """Return a new token of an account, which ends after so many seconds.

    That of a pod ends with the pod, and tells the server on which node the pod is.
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
    """Make an account that may do this much, and write a kubeconfig with a token of it."""
    service_account(api, name, rules)
    return kubeconfig(folder / f"{name}.yaml", api, token=token(api, name, seconds=SHORTEST))


def add_namespace(api: Api, name: str) -> None:
    """Make a namespace, where there is none of that name."""
    if not api.find("Namespace", name):
        api.create({"kind": "Namespace", "metadata": {"name": name}})


def remove_namespace(api: Api, name: str) -> None:
    """Remove a namespace that holds nothing any more: its controller does not run here."""
    api.delete("Namespace", name)
    left = api.find("Namespace", name)
    if left:
        left["spec"] = {"finalizers": []}
        api.request("PUT", path("Namespace", None, name, "finalize"), left)


def kubeconfig(
    file: Path, api: Api, token_file: Path | None = None, *, token: str | None = None
) -> Path:
    """Write a kubeconfig: with the token in a file of its own, or in itself.

    Without either, it is the token of `api`.
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
