"""Check `cluster.networkpolicy`: whether a NetworkPolicy limits access to the scheduler extender.

Without a web configuration file, the extender accepts requests of every client. A client can send
so many requests that the scheduler has to wait.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.kube.json_access import as_dict, as_dicts
from podgpu.doctor.cluster.checks import CHECKS
from podgpu.doctor.cluster.extender_checks import extenders, has_option
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    labels_of,
    matches,
    name_of,
    namespace_of,
    template_of,
)

_FIX: Final = (
    "allow only the scheduler and the readers of its metrics: extender.networkPolicy.from of the "
    "chart; for a scheduler on the host network, use an ipBlock of the control plane's nodes"
)


async def check_policies(api: KubeApi, cluster: Cluster) -> list[Finding]:
    """Run the check `cluster.networkpolicy`."""
    check, ours = CHECKS["cluster.networkpolicy"], extenders(cluster)
    if not ours:
        return [check.skip("NetworkPolicies", "not needed: no podgpu extender is known")]
    return [await _check_deployment(api, each) for each in ours]


async def _check_deployment(api: KubeApi, deployment: Raw) -> Finding:
    check, place = CHECKS["cluster.networkpolicy"], display_name(deployment)
    if has_option(deployment, "--web-config"):
        return check.skip(place, "its web configuration file limits who can query it")
    space = quote(namespace_of(deployment), safe="")
    path = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies"
    try:
        response = as_dict(orjson.loads(await api.get(path, {})))
    except (ApiError, orjson.JSONDecodeError) as error:
        return check.skip(place, f"its NetworkPolicies cannot be listed: {error}")
    labels = labels_of(template_of(deployment))
    selecting = [each for each in as_dicts(response.get("items")) if _selects(each, labels)]
    if not selecting:
        observed = "no NetworkPolicy selects its pods: every pod of the cluster may query it"
        return check.warning(place, observed, _FIX)
    names = ", ".join(map(name_of, selecting))
    if open_to_all := [name_of(each) for each in selecting if _allows_all(each)]:
        observed = f"NetworkPolicy {', '.join(open_to_all)} allows connections from everywhere"
        return check.warning(place, observed, _FIX)
    return check.ok(place, f"NetworkPolicy {names} limits who can connect")


def _selects(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a policy limits connections to a pod; without `policyTypes` every policy does."""
    spec = as_dict(policy.get("spec"))
    types = spec.get("policyTypes")
    incoming = not isinstance(types, list) or not types or "Ingress" in types
    return incoming and matches(spec.get("podSelector"), labels)


def _allows_all(policy: Mapping[str, Any]) -> bool:
    rules: Sequence[Raw] = as_dicts(as_dict(policy.get("spec")).get("ingress"))
    return any(not rule.get("from") for rule in rules)
