"""Checks of `podgpu doctor` for the source `podresources`: sockets and the kubelet's responses."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from config.value_types import Duration
from pipeline.allocations.gpu_resources import DEFAULT_DRIVERS, GpuNames, GpuResources
from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import FAILS, NONE, WARNS, Check, Finding
from pipeline.diagnostics.api_permissions import NOT_FOUND
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.file_access import access_problem
from pipeline.diagnostics.kubelet_roots import ROOTS, other_roots
from pipeline.kube.json_access import as_dict, as_dicts, as_text
from pipeline.model import AdvertisedResource
from pipeline.model.plugin_ids import without_replica
from sources.podresources.kubelet_connection import Kubelet, KubeletError, find_socket
from sources.podresources.options import Options
from sources.podresources.responses import Selection, read_allocatable, read_list

_SOCKET_CHECK: Final = Check("podresources.socket", FAILS)
_DEVICES_CHECK: Final = Check("podresources.devices", WARNS)

_TIMEOUT: Final = Duration.parse("10s")
_API_SECONDS: Final = 5.0
"""Time limit in seconds for reading ResourceSlices: the finding about the kubelet waits for it."""

_SOCKET: Final = "pod-resources/kubelet.sock"
_CHART_FIX: Final = "with the chart: the value kubeletPath=ROOT/pod-resources, or distribution"


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `podresources.*` for each socket; only the first if a socket is unusable."""
    found: list[Finding] = []
    for path in dict.fromkeys(options.sockets):
        problem = await in_thread(partial(_unusable, path, ctx.roots.host))
        found += [problem] if problem is not None else await _check_kubelet(path, options, ctx)
    return found


def _unusable(path: Path, host: Path) -> Finding | None:
    """Return a finding if the path is not a usable socket; None if it is usable. Blocking."""
    place = find_socket(path)
    if not isinstance(place, str):
        if os.access(path, os.R_OK | os.W_OK):
            return None
        return _inaccessible(path, f"uid {os.geteuid()} may not read and write it")
    if problem := access_problem(path):
        return _inaccessible(path, problem)
    mount = f"mount the folder {path.parent} from the host"
    for root, users in ROOTS:
        other = host / root / _SOCKET
        if other != path and not isinstance(find_socket(other), str):
            observed = f"no socket here; there is one at {other}, as with {users}"
            return _SOCKET_CHECK.failure(str(path), observed, f"set sockets: [{other}]")
    if path.parent.is_dir():
        observed = "the folder exists, but it has no socket"
        fix = (
            f"check that the kubelet runs, and whether it has another root ({other_roots(path)}): "
            f"then mount the folder pod-resources of that root ({_CHART_FIX})"
        )
        if path.exists():
            observed, fix = "is not a socket", f"remove it and {mount}"
        return _SOCKET_CHECK.failure(str(path), observed, fix)
    mount += (
        f"; if the kubelet has another root ({other_roots(path)}), that of this root ({_CHART_FIX})"
    )
    return _SOCKET_CHECK.failure(
        str(path), f"folder {path.parent} does not exist here: it is not mounted", mount
    )


def _inaccessible(path: Path, observed: str) -> Finding:
    return _SOCKET_CHECK.failure(
        str(path),
        observed,
        "run podgpu as root, in group 0 for the folder, or with the capability DAC_OVERRIDE: "
        "folder and socket belong to root",
    )


async def _check_kubelet(path: Path, options: Options, ctx: DoctorContext) -> list[Finding]:
    try:
        kubelet = Kubelet(path, min(options.timeout, _TIMEOUT), lambda _method, _result: None)
    except KubeletError as error:
        return [
            _SOCKET_CHECK.failure(
                str(path), str(error), "raise the limit of open files, or use a shorter path"
            )
        ]
    try:
        method, listed = await kubelet.list()
        offered = await kubelet.allocatable()
        found = await in_thread(partial(_response_findings, path, method, listed, offered, options))
    except KubeletError as error:
        return [_SOCKET_CHECK.failure(str(path), str(error), _FIXES.get(error.result, _LOG_FIX))]
    finally:
        await kubelet.close()
    missing = any(each.check == _DEVICES_CHECK.id and each.fix for each in found)
    driver = await _dra_driver(options.drivers, ctx) if missing else ""
    if not driver:
        return found
    observed = f"no GPUs of a device plugin; the DRA driver {driver} offers this node's GPUs"
    return [
        _DEVICES_CHECK.ok(each.subject, observed) if each.check == _DEVICES_CHECK.id else each
        for each in found
    ]


_LOG_FIX: Final = "see the kubelet's log on the node (journalctl -u kubelet)"
_FIXES: Final = {
    "unreachable": "start the kubelet; mount its folder instead of the socket, which the kubelet "
    "replaces at each start",
    "unimplemented": "set the kubelet's own socket, .../pod-resources/kubelet.sock",
    "timeout": "check the load of the node and the kubelet's log; raise timeout",
    "rejected": "the kubelet accepts 100 requests a second: find out which program sends so many",
}


def _response_findings(
    path: Path, method: str, listed: bytes, offered: bytes | None, options: Options
) -> list[Finding]:
    resources, drivers = GpuResources(options.resources), GpuNames(options.drivers, DEFAULT_DRIVERS)
    held = read_list(listed, str(path), Selection(resources, drivers))
    found = [
        _SOCKET_CHECK.ok(str(path), f"{len(held.claims)} claims by {method}"),
        _version(method, offered is not None),
    ]
    if offered is None:
        return found
    everything = read_allocatable(offered, str(path), Selection(GpuResources(("*",)), drivers))
    gpus = [
        each
        for each in everything
        if resources.are_gpus(each.resource, (device.text for device in each.devices))
    ]
    by_claims = any(claim.resource == "" for claim in held.claims)
    found.append(_devices(gpus, everything, options, by_claims=by_claims))
    if gpus:
        found.append(_sharing(gpus))
    return found


def _version(method: str, offers: bool) -> Finding:
    check = Check("podresources.version", WARNS)
    if offers:
        return check.ok(method, "the kubelet offers all methods that podgpu needs")
    old = method.startswith("v1alpha1")
    observed = (
        "the kubelet is older than 1.20: it reports neither resource claims nor allocatable devices"
        if old
        else "the kubelet is older than 1.23, or its feature GetAllocatableResources is disabled: "
        "it does not report allocatable devices"
    )
    fix = "upgrade the kubelet to 1.23 or newer; it reports resource claims (DRA) from 1.34 on"
    return check.warning(method, observed, fix)


def _devices(
    gpus: Iterable[AdvertisedResource],
    everything: Iterable[AdvertisedResource],
    options: Options,
    *,
    by_claims: bool,
) -> Finding:
    place = "GetAllocatableResources"
    counts = [f"{len(each.devices)} of {each.resource}" for each in gpus]
    if counts:
        return _DEVICES_CHECK.ok(place, ", ".join(counts))
    if by_claims:
        return _DEVICES_CHECK.ok(place, "no GPUs of a device plugin; a DRA driver allocates them")
    others = ", ".join(each.resource for each in everything)
    fix = (
        "check that the device plugin's pod runs on this node, and read its log (usually a runtime "
        "class is missing); "
    )
    if others:
        observed = f"none of resources ({', '.join(options.resources)}), but {others}"
        return _DEVICES_CHECK.warning(
            place, observed, f"{fix}or set resources to the names that are GPUs"
        )
    observed = "no device plugin has registered: no pod can get a GPU"
    return _DEVICES_CHECK.warning(
        place, observed, f"{fix}if pods get GPUs from a DRA driver, ignore this warning"
    )


def _sharing(gpus: Iterable[AdvertisedResource]) -> Finding:
    check, place = Check("podresources.sharing", NONE), "device ids"
    shared = [
        each.resource
        for each in gpus
        if any(without_replica(device.text) != device.text for device in each.devices)
    ]
    if not shared:
        return check.ok(place, "no GPU is shared")
    # The administrator has configured the sharing, so it is not a warning.
    return check.ok(
        place,
        f"{', '.join(shared)}: shares of GPUs (time-slicing), so several pods may hold one GPU: "
        "podgpu_device_holder_info names them, and the GPU's readings have no pod labels",
    )


async def _dra_driver(patterns: Iterable[str], ctx: DoctorContext) -> str:
    """Return a DRA driver that offers GPUs of this node, according to ResourceSlices.

    ResourceSlices are read only with the credentials of sources that read ResourceSlices too.

    Args:
        patterns: glob patterns of the drivers whose devices are GPUs.
        ctx: the context, with the node's name and the configured sources.

    Returns:
        Name of the driver; empty if none is found.
    """
    wanted = GpuNames(patterns, DEFAULT_DRIVERS)
    servers = [
        each.options.kubeconfig
        for each in ctx.config.sources.values()
        if getattr(each.options, "resource_slices", False) and hasattr(each.options, "kubeconfig")
    ]
    query = {"fieldSelector": f"spec.nodeName={ctx.node}"}
    for kubeconfig in dict.fromkeys(servers):
        # Errors are ignored here: that source's own checks report them.
        with suppress(TransientError, orjson.JSONDecodeError, TimeoutError):
            async with asyncio.timeout(_API_SECONDS), ctx.kube(kubeconfig) as api:
                drivers = await _drivers(api, query)
            if found := next(filter(wanted, drivers), ""):
                return found
    return ""


async def _drivers(api: KubeApi, query: Mapping[str, str]) -> list[str]:
    """Return the drivers of the node's slices, from the newest API version that the server has.

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
