"""For the doctor alone: whether a DRA driver offers this node's GPUs, whoever has claimed them."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import orjson

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.diagnostics.api_permissions import NOT_FOUND
from pipeline.diagnostics.context import DoctorContext
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.model.plugin_ids import glob_matcher

_SECONDS: Final = 5.0
"""For a server that doesn't answer: what the kubelet said must not wait for it longer."""


async def dra_driver(patterns: Iterable[str], ctx: DoctorContext) -> str:
    """Return a DRA driver that offers GPUs of this node, by ResourceSlices.

    They are asked for where another source has an API server.

    Args:
        patterns: of the drivers whose devices are GPUs.
        ctx: which node, and which sources there are.

    Returns:
        Its name; empty if nobody says that there is one.
    """
    wanted = glob_matcher(patterns)
    servers = [
        each.options.kubeconfig
        for each in ctx.config.sources.values()
        if getattr(each.options, "resource_slices", False) and hasattr(each.options, "kubeconfig")
    ]
    query = {"fieldSelector": f"spec.nodeName={ctx.node}"}
    for kubeconfig in dict.fromkeys(servers):
        # What can't be had is told by that source's own checks.
        with suppress(TransientError, orjson.JSONDecodeError, TimeoutError):
            async with asyncio.timeout(_SECONDS), ctx.kube(kubeconfig) as api:
                drivers = await _drivers(api, query)
            if found := next(filter(wanted, drivers), ""):
                return found
    return ""


async def _drivers(api: KubeApi, query: Mapping[str, str]) -> list[str]:
    """Return the drivers of the node's slices, by the newest API that there is.

    Raises:
        TransientError: the server doesn't give them.
    """
    for version in ("v1", "v1beta2", "v1beta1"):
        try:
            answer = await api.get(f"/apis/resource.k8s.io/{version}/resourceslices", query)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        else:
            slices = as_dicts(as_dict(orjson.loads(answer)).get("items"))
            return [as_text(as_dict(each.get("spec")).get("driver")) for each in slices]
    return []
