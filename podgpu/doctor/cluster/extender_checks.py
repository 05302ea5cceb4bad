"""Check the scheduler extender: `cluster.extender` and `cluster.networkpolicy`.

The extender has its own service account. SubjectAccessReviews query that account's permissions,
whatever grants them. Without a web configuration file, the extender accepts requests of every
client, and a client could send so many requests that the scheduler has to wait. Therefore a
NetworkPolicy has to limit the clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import BOTH, WARNS, Check, Finding
from pipeline.diagnostics.api_permissions import FORBIDDEN, Account, Right, is_allowed
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    image_name,
    labels_of,
    matches,
    name_of,
    namespace_of,
    template_of,
)

_EXTENDER: Final = Check("cluster.extender", BOTH)
_NETWORKPOLICY: Final = Check("cluster.networkpolicy", WARNS)

RIGHTS: Final = (Right("list", "nodes"), Right("watch", "nodes"))
"""The permissions that the extender needs; see `docs/extender.md`."""

_COMMAND: Final = "extender"
_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_KUBECONFIG: Final = "--kubeconfig"
_FIRST_WORDS: Final = 4
"""How many words of a command line may contain the command: an interpreter may precede it."""

_POLICY_FIX: Final = (
    "allow only the scheduler and the readers of its metrics: extender.networkPolicy.from of the "
    "chart; for a scheduler on the host network, use an ipBlock of the control plane's nodes"
)


async def check_extenders(api: KubeApi, cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.extender`."""
    place = "Deployments"
    if cluster.deployments is None:
        return [_EXTENDER.skip(place, "cannot be listed")]
    ours = extenders(cluster)
    if not ours:
        return [_EXTENDER.skip(place, "none runs podgpu extender")]
    return [finding for each in ours for finding in await _check_deployment(api, each)]


def extenders(cluster: Cluster) -> list[Raw]:
    """Return the Deployments of extenders, in the namespace `cluster.namespace` if it is set."""
    return [
        each
        for each in cluster.deployments or ()
        if is_extender(each) and cluster.namespace in ("", namespace_of(each))
    ]


def has_option(deployment: Mapping[str, Any], option: str) -> bool:
    """Return whether a container is started with an option: `NAME` or `NAME=VALUE`."""
    containers = _containers(template_of(deployment))
    return any(word.partition("=")[0] == option for _, words in containers for word in words)


def is_extender(deployment: Mapping[str, Any]) -> bool:
    """Return whether a Deployment runs `podgpu extender`: by its command, and image or labels."""
    template = template_of(deployment)
    labels = labels_of(template)
    labelled = labels.get(_NAME) == "podgpu" or labels.get(_COMPONENT) == _COMMAND
    return any(
        _COMMAND in words[:_FIRST_WORDS] and (labelled or name == "podgpu")
        for name, words in _containers(template)
    )


def _containers(template: Raw) -> list[tuple[str, list[str]]]:
    """Return the name of the image and the command with arguments, for each container."""
    found = as_dicts(as_dict(template.get("spec")).get("containers"))
    return [
        (image_name(each), [*_arguments(each.get("command")), *_arguments(each.get("args"))])
        for each in found
    ]


def _arguments(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


async def _check_deployment(api: KubeApi, deployment: Raw) -> list[Finding]:
    place = display_name(deployment)
    template = template_of(deployment)
    account = Account(
        namespace_of(deployment),
        as_text(as_dict(template.get("spec")).get("serviceAccountName")) or "default",
    )
    found = _readiness(deployment)
    if has_option(deployment, _KUBECONFIG):
        why = f"its permissions are those of its {_KUBECONFIG}: see its log and kubectl auth can-i"
        return [*found, _EXTENDER.skip(place, why)]
    try:
        missing = [right for right in RIGHTS if not await is_allowed(api, right, account)]
    except ApiError as error:
        why = str(error)
        if error.status == FORBIDDEN:
            why = (
                "the kubeconfig's user may not create subjectaccessreviews, so the permissions of "
                f"{account} are unknown; run kubectl auth can-i watch nodes --as {account.user}"
            )
        return [*found, _EXTENDER.skip(place, why)]
    refused = [
        _EXTENDER.failure(place, f"{account} may not {each}", each.fix(str(account)))
        for each in missing
    ]
    if refused:
        return [*refused, *found]
    return found or [_EXTENDER.ok(place, f"ready; {account} may {', '.join(map(str, RIGHTS))}")]


def _readiness(deployment: Mapping[str, Any]) -> list[Finding]:
    """Return a finding if no pods are requested, or if not every pod is ready; else nothing."""
    place = display_name(deployment)
    replicas = as_int(as_dict(deployment.get("spec")).get("replicas"))
    wanted = 1 if replicas is None else replicas
    ready = as_int(as_dict(deployment.get("status")).get("readyReplicas")) or 0
    if not wanted:
        return [_EXTENDER.warning(place, "has 0 replicas", "set its replicas to 1 or more")]
    if ready >= wanted:
        return []
    observed = f"{ready} of {wanted} pods are ready"
    fix = f"see kubectl -n {namespace_of(deployment)} describe pods, and their logs"
    return [(_EXTENDER.warning if ready else _EXTENDER.failure)(place, observed, fix)]


async def check_policies(api: KubeApi, cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.networkpolicy`."""
    ours = extenders(cluster)
    if not ours:
        return [_NETWORKPOLICY.skip("NetworkPolicies", "not needed: no podgpu extender is known")]
    return [await _check_policies(api, each) for each in ours]


async def _check_policies(api: KubeApi, deployment: Raw) -> Finding:
    place = display_name(deployment)
    if has_option(deployment, "--web-config"):
        return _NETWORKPOLICY.skip(place, "its web configuration file limits who can query it")
    space = quote(namespace_of(deployment), safe="")
    path = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies"
    try:
        response = as_dict(orjson.loads(await api.get(path, {})))
    except (ApiError, orjson.JSONDecodeError) as error:
        return _NETWORKPOLICY.skip(place, f"its NetworkPolicies cannot be listed: {error}")
    labels = labels_of(template_of(deployment))
    selecting = [each for each in as_dicts(response.get("items")) if _selects(each, labels)]
    if not selecting:
        observed = "no NetworkPolicy selects its pods: every pod of the cluster may query it"
        return _NETWORKPOLICY.warning(place, observed, _POLICY_FIX)
    names = ", ".join(map(name_of, selecting))
    if open_to_all := [name_of(each) for each in selecting if _allows_all(each)]:
        observed = f"NetworkPolicy {', '.join(open_to_all)} allows connections from everywhere"
        return _NETWORKPOLICY.warning(place, observed, _POLICY_FIX)
    return _NETWORKPOLICY.ok(place, f"NetworkPolicy {names} limits who can connect")


def _selects(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a policy limits the connections to a pod with these labels."""
    spec = as_dict(policy.get("spec"))
    types = spec.get("policyTypes")
    incoming = not isinstance(types, list) or not types or "Ingress" in types
    return incoming and matches(spec.get("podSelector"), labels)


def _allows_all(policy: Mapping[str, Any]) -> bool:
    rules: Sequence[Raw] = as_dicts(as_dict(policy.get("spec")).get("ingress"))
    return any(not rule.get("from") for rule in rules)
