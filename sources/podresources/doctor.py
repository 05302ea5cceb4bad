"""What `podgpu doctor` looks at for the podresources source: the sockets, and who answers."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from config.value_types import Duration
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.kubelet_roots import ROOTS, other_roots
from pipeline.diagnostics.path_access import access_problem, is_socket
from pipeline.model import AdvertisedResource, RawDeviceId
from pipeline.model.plugin_ids import glob_matcher, without_replica
from sources.podresources.errors import KubeletError
from sources.podresources.kubelet_connection import Kubelet
from sources.podresources.options import Options
from sources.podresources.resource_slices import dra_driver
from sources.podresources.responses import (
    InvalidResponseError,
    Selection,
    read_allocatable,
    read_list,
)
from sources.podresources.socket_path import find_socket

_TIMEOUT: Final = Duration.parse("10s")
_SOCKET: Final = "pod-resources/kubelet.sock"
_CHART: Final = "of the chart's values kubeletPath=ROOT/pod-resources does it, or distribution"


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `podresources.*` for each socket."""
    found: list[Finding] = []
    for path in dict.fromkeys(options.sockets):
        fault = await in_thread(partial(_unusable, path, ctx.roots.host))
        found += [fault] if fault is not None else await _ask(path, options, ctx)
    return found


def _unusable(path: Path, host: Path) -> Finding | None:
    """Return what is wrong with the place; None for a socket that may be connected to. Blocking."""
    check, place = CHECKS["podresources.socket"], find_socket(path)
    if not isinstance(place, str):
        if os.access(path, os.R_OK | os.W_OK):
            return None
        return _closed(path, f"is not readable and writable to uid {os.geteuid()}")
    if told := access_problem(path):
        return _closed(path, told)
    mount = f"mount the folder {path.parent} from the host"
    others = [(host / root / _SOCKET, whose) for root, whose in ROOTS]
    elsewhere = [(at, whose) for at, whose in others if at != path and is_socket(at)]
    if elsewhere:
        at, whose = elsewhere[0]
        saw = f"no socket here; there is one at {at}, the place of {whose}"
        return check.failure(str(path), saw, f"set sockets: [{at}]")
    if path.parent.is_dir():
        saw = "the folder is here, and no socket in it"
        mend = (
            f"see that the kubelet runs, and whether it has another root ({other_roots(path)}): "
            f"then mount that one's pod-resources there ({_CHART})"
        )
        if path.exists():
            saw, mend = "is not a socket", f"remove what is there and {mount}"
        return check.failure(str(path), saw, mend)
    mount += f"; where the kubelet has another root ({other_roots(path)}), that one's ({_CHART})"
    return check.failure(str(path), f"there is no folder {path.parent}: it is not mounted", mount)


def _closed(path: Path, saw: str) -> Finding:
    return CHECKS["podresources.socket"].failure(
        str(path),
        saw,
        "run podgpu as root, in group 0 for the folder, or with the capability DAC_OVERRIDE: "
        "folder and socket are root's",
    )


async def _ask(path: Path, options: Options, ctx: DoctorContext) -> list[Finding]:
    check = CHECKS["podresources.socket"]
    try:
        kubelet = Kubelet(path, min(options.timeout, _TIMEOUT), lambda _method, _result: None)
    except KubeletError as error:
        return [check.failure(str(path), str(error), "raise the limit, or shorten the path")]
    try:
        method, listed = await kubelet.list()
        offered = await kubelet.allocatable()
    except KubeletError as error:
        return [check.failure(str(path), str(error), _FIXES.get(error.result, _FAILED))]
    finally:
        await kubelet.close()
    try:
        found = await in_thread(partial(_response_findings, path, method, listed, offered, options))
    except InvalidResponseError as error:
        return [check.failure(str(path), f"the answer {error}", _FAILED)]
    lacking = any(each.check == "podresources.devices" and each.fix for each in found)
    driver = await dra_driver(options.drivers, ctx) if lacking else ""
    if not driver:
        return found
    devices = CHECKS["podresources.devices"]
    saw = f"no device plugin's GPUs; the DRA driver {driver} offers this node's"
    return [devices.ok(each.subject, saw) if each.check == devices.id else each for each in found]


_FAILED: Final = "see the kubelet's log on the node (journalctl -u kubelet)"
_FIXES: Final = {
    "unreachable": "start the kubelet; mount its folder instead of the socket, which is another "
    "one after each start",
    "unimplemented": "name the kubelet's own socket, .../pod-resources/kubelet.sock",
    "timeout": "see the load of the node and the kubelet's log; raise timeout",
    "rejected": "the kubelet takes 100 requests a second: see who else asks it all the time",
}


def _response_findings(
    path: Path, method: str, listed: bytes, offered: bytes | None, options: Options
) -> list[Finding]:
    wanted = glob_matcher(options.resources)
    held = read_list(listed, str(path), Selection(wanted, glob_matcher(options.drivers)))
    found = [
        CHECKS["podresources.socket"].ok(str(path), f"{len(held.claims)} claims by {method}"),
        _version(method, offered is not None),
    ]
    if offered is None:
        return found
    everything = read_allocatable(offered, Selection(lambda _name: True, lambda _name: True))
    gpus = [resource for resource in everything if wanted(resource.resource)]
    by_claims = any(claim.resource == "" for claim in held.claims)
    found.append(_devices(gpus, everything, options, by_claims=by_claims))
    if gpus:
        found.append(_sharing(gpus))
    return found


def _version(method: str, offers: bool) -> Finding:
    check = CHECKS["podresources.version"]
    if offers:
        return check.ok(method, "the kubelet offers all that is needed")
    old = method.startswith("v1alpha1")
    saw = (
        "the kubelet is older than 1.20: it tells of no resource claims, nor of what is free"
        if old
        else "the kubelet is older than 1.23 or has GetAllocatableResources switched off: it "
        "doesn't tell what is free"
    )
    mend = "upgrade the kubelet to 1.23 or newer; resource claims (DRA) are told from 1.34 on"
    return check.warning(method, saw, mend)


def _devices(
    gpus: Iterable[AdvertisedResource],
    everything: Iterable[AdvertisedResource],
    options: Options,
    *,
    by_claims: bool,
) -> Finding:
    check, place = CHECKS["podresources.devices"], "GetAllocatableResources"
    told = [f"{len(each.devices)} of {each.resource}" for each in gpus]
    if told:
        return check.ok(place, ", ".join(told))
    if by_claims:
        return check.ok(place, "no device plugin's GPUs; a DRA driver hands them out")
    others = ", ".join(each.resource for each in everything)
    mend = (
        "see that the device plugin's pod runs on this node and what its log says (a runtime class "
        "that is missing is the usual reason); "
    )
    if others:
        saw = f"none of resources ({', '.join(options.resources)}), but {others}"
        return check.warning(place, saw, f"{mend}or set resources to the names that are GPUs")
    saw = "no device plugin has registered anything: no pod can be given a GPU"
    return check.warning(place, saw, f"{mend}nothing, where pods get GPUs from a DRA driver")


def _sharing(gpus: Iterable[AdvertisedResource]) -> Finding:
    check, place = CHECKS["podresources.sharing"], "ids of the devices"
    shared = [each.resource for each in gpus if any(map(_is_share, each.devices))]
    if not shared:
        return check.ok(place, "no shares")
    # Whoever set up the device plugin has said so; nothing of podgpu's says that it isn't meant.
    return check.ok(
        place,
        f"{', '.join(shared)}: shares of GPUs (time-slicing), several pods may hold one GPU: "
        "podgpu_device_holder_info names them, and its readings carry no pod's labels",
    )


def _is_share(device: RawDeviceId) -> bool:
    return without_replica(device.text) != device.text
