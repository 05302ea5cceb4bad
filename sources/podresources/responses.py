"""Decode the kubelet's responses into claims."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from pipeline.allocations.device_injection import gpu_by_cdi
from pipeline.allocations.gpu_resources import GpuResources
from pipeline.model import AdvertisedResource, Claim, Evidence, Origin, PartialRef, RawDeviceId
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES, plugin_ids
from pipeline.net.protobuf_schema import DecodeError, Schema
from sources.podresources.kubelet_connection import KubeletError


class Selection(NamedTuple):
    """Which extended resources and DRA drivers in a response are GPUs.

    Attributes:
        resources: selects extended resources.
        drivers: function that returns whether the devices of a DRA driver can be GPUs.
    """

    resources: GpuResources
    drivers: Callable[[str], bool]


class ListedClaims(NamedTuple):
    """The devices of all containers in a response.

    Attributes:
        claims: one claim for each container and resource or ResourceClaim; sorted, since the
            kubelet's order is random.
        unprepared: namespace and name of each pod with a ResourceClaim that has no devices yet.
    """

    claims: tuple[Claim, ...]
    unprepared: tuple[tuple[str, str], ...] = ()


def read_list(data: bytes, origin: str, selection: Selection) -> ListedClaims:
    """Decode the response to List, of v1 or v1alpha1.

    Args:
        data: the encoded response.
        origin: where the response comes from, for people.
        selection: which resources and drivers are GPUs.

    Raises:
        KubeletError: the response cannot be decoded, or has more than `MAX_CLAIMED_DEVICES`
            devices.
    """
    held: dict[PartialRef, dict[str, list[str]]] = {}
    claimed: dict[tuple[PartialRef, str], set[RawDeviceId]] = {}
    unprepared: set[tuple[str, str]] = set()
    for pod in _decode("ListPodResourcesResponse", data, origin).pod_resources:
        for container in pod.containers:
            if not (container.devices or container.dynamic_resources):
                continue
            subject = PartialRef(pod.namespace, pod.name, container.name)
            _gather(container.devices, held.setdefault(subject, {}), selection)
            for claim in container.dynamic_resources:
                if not claim.claim_resources:
                    unprepared.add((pod.namespace, pod.name))
                found = _claimed(claim.claim_resources, selection)
                name = f"{claim.claim_namespace}/{claim.claim_name}" if claim.claim_name else ""
                claimed.setdefault((subject, name), set()).update(found)
    source = Origin(Evidence.KUBELET_IDS, origin)
    claims = [
        Claim(subject, plugin_ids(ids), None, None, source, resource)
        for subject, resources in held.items()
        for resource, ids in resources.items()
        if selection.resources.are_gpus(resource, ids)
    ]
    claims += [
        Claim(subject, tuple(sorted(devices)), None, None, source, resource_claim=name)
        for (subject, name), devices in claimed.items()
        if devices
    ]
    if sum(len(claim.devices) for claim in claims) > MAX_CLAIMED_DEVICES:
        text = (
            f"{origin}: the response names more than {MAX_CLAIMED_DEVICES} devices, with a shared "
            "one counted for each of its containers; select fewer `resources`"
        )
        raise KubeletError("failed", text)
    claims.sort(key=lambda claim: (claim.subject, claim.resource, claim.resource_claim))
    return ListedClaims(tuple(claims), tuple(sorted(unprepared)))


def read_allocatable(
    data: bytes, origin: str, selection: Selection
) -> tuple[AdvertisedResource, ...]:
    """Decode the response to GetAllocatableResources; return the resources sorted by name.

    Raises:
        KubeletError: the response cannot be decoded.
    """
    offered: dict[str, list[str]] = {}
    _gather(_decode("AllocatableResourcesResponse", data, origin).devices, offered, selection)
    return tuple(
        AdvertisedResource(resource, plugin_ids(ids))
        for resource, ids in sorted(offered.items())
        if selection.resources.are_gpus(resource, ids)
    )


def _gather(devices: Any, ids: dict[str, list[str]], selection: Selection) -> None:
    """Add the device ids of the resources that can be GPUs to `ids`, by resource."""
    for entry in devices:
        resource = entry.resource_name
        if resource in ids or selection.resources.can_be_gpus(resource):
            ids.setdefault(resource, []).extend(entry.device_ids)


def _claimed(resources: Any, selection: Selection) -> Iterator[RawDeviceId]:
    for device in resources:
        if not device.driver_name:
            # Kubernetes before 1.31 reports only the container runtime's names.
            names = (gpu_by_cdi(each.name) for each in device.cdi_devices)
            yield from (gpu for gpu in names if gpu is not None)
        elif selection.drivers(device.driver_name):
            text = f"{device.driver_name}/{device.pool_name}/{device.device_name}"
            yield RawDeviceId("dra", text)


def _decode(name: str, data: bytes, origin: str) -> Any:
    try:
        return _schema().message(f"v1.{name}").FromString(data)
    except DecodeError:
        text = "the response cannot be decoded; check that it is the kubelet's socket"
        raise KubeletError("failed", f"{origin}: {text}") from None


@cache
def _schema() -> Schema:
    return Schema.load_from_package("sources.podresources", "podresources.binpb")
