"""Whether a NetworkPolicy keeps others away from the scheduler extender.

Who can ask it can ask so much that the scheduler waits, and it takes questions of everybody unless
it has a web config.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.kube.json_access import as_dict, as_dicts
from podgpu.doctor.cluster.extender_checks import extenders, has_option
from podgpu.doctor.cluster.objects import (
    Cluster,
    Raw,
    display_name,
    labels_of,
    name_of,
    namespace_of,
    template_of,
)
from podgpu.doctor.cluster.scheduling_rules import matches

_FIX: Final = (
    "let in the scheduler alone, and whoever reads its metrics: extender.networkPolicy.from of the "
    "chart; a scheduler on its node's network is an ipBlock of the control plane's nodes"
)


async def check_policies(api: KubeApi, cluster: Cluster) -> list[Finding]:
    """Check `cluster.networkpolicy`."""
    check, ours = CHECKS["cluster.networkpolicy"], extenders(cluster)
    if not ours:
        return [check.skip("NetworkPolicies", "none is needed: no podgpu extender is known")]
    return [await _check_deployment(api, each) for each in ours]


async def _check_deployment(api: KubeApi, deployment: Raw) -> Finding:
    check, place = CHECKS["cluster.networkpolicy"], display_name(deployment)
    if has_option(deployment, "--web-config"):
        return check.skip(place, "it has a web config, which says who may ask")
    space = quote(namespace_of(deployment), safe="")
    path = f"/apis/networking.k8s.io/v1/namespaces/{space}/networkpolicies"
    try:
        answer = as_dict(orjson.loads(await api.get(path, {})))
    except (ApiError, orjson.JSONDecodeError) as error:
        return check.skip(place, f"its NetworkPolicies can't be listed: {error}")
    labels = labels_of(template_of(deployment))
    selecting = [each for each in as_dicts(answer.get("items")) if _selects(each, labels)]
    if not selecting:
        saw = "no NetworkPolicy selects its pods: every pod of the cluster may ask it"
        return check.warning(place, saw, _FIX)
    names = ", ".join(map(name_of, selecting))
    if open_to_all := [name_of(each) for each in selecting if _lets_everybody_in(each)]:
        saw = f"NetworkPolicy {', '.join(open_to_all)} lets everybody in"
        return check.warning(place, saw, _FIX)
    return check.ok(place, f"NetworkPolicy {names} says who may ask")


def _selects(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether it limits who connects to a pod; without `policyTypes` every policy does."""
    spec = as_dict(policy.get("spec"))
    types = spec.get("policyTypes")
    incoming = not isinstance(types, list) or not types or "Ingress" in types
    return incoming and matches(spec.get("podSelector"), labels)


def _lets_everybody_in(policy: Mapping[str, Any]) -> bool:
    rules: Sequence[Raw] = as_dicts(as_dict(policy.get("spec")).get("ingress"))
    return any(not rule.get("from") for rule in rules)
