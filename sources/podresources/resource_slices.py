"""Find out, for `podgpu doctor`, whether a DRA driver offers this node's GPUs."""

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
"""Time limit for the API server, since the finding about the kubelet waits for this result."""


async def dra_driver(patterns: Iterable[str], ctx: DoctorContext) -> str:
    """Return a DRA driver that offers GPUs of this node, according to ResourceSlices.

    The ResourceSlices are read only if another source uses an API server.

    Args:
        patterns: glob patterns of the drivers whose devices are GPUs.
        ctx: has the node's name and the other sources.

    Returns:
        Name of the driver; empty if none is found.
    """
    wanted = glob_matcher(patterns)
    servers = [
        each.options.kubeconfig
        for each in ctx.config.sources.values()
        if getattr(each.options, "resource_slices", False) and hasattr(each.options, "kubeconfig")
    ]
    query = {"fieldSelector": f"spec.nodeName={ctx.node}"}
    for kubeconfig in dict.fromkeys(servers):
        # Errors are ignored here: that source's own checks report them.
        with suppress(TransientError, orjson.JSONDecodeError, TimeoutError):
            async with asyncio.timeout(_SECONDS), ctx.kube(kubeconfig) as api:
                drivers = await _drivers(api, query)
            if found := next(filter(wanted, drivers), ""):
                return found
    return ""


async def _drivers(api: KubeApi, query: Mapping[str, str]) -> list[str]:
    """Return the drivers of the node's slices, from the newest API version of the server.

    Raises:
        TransientError: the request failed.
    """
    for version in ("v1", "v1beta2", "v1beta1"):
        try:
            response = await api.get(f"/apis/resource.k8s.io/{version}/resourceslices", query)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        else:
            slices = as_dicts(as_dict(orjson.loads(response)).get("items"))
            return [as_text(as_dict(each.get("spec")).get("driver")) for each in slices]
    return []
