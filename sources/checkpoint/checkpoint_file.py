"""Decode the kubelet's checkpoint into claims."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from pipeline.allocations.gpu_resources import GpuResources
from pipeline.component.claim_file_reader import FileClaims
from pipeline.files.bounded_read import UnreadableError
from pipeline.model import Claim, Evidence, Origin, PartialRef
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES, plugin_ids
from sources.checkpoint.allocate_response import InvalidResponseError, agrees_with, gpus_of

_MAX_REPORTED = 3

_Decoded = TypeVar("_Decoded")
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Data(msgspec.Struct, rename={"entries": "PodDeviceEntries"}):
    entries: list[msgspec.Raw] | None


class _Document(msgspec.Struct, rename={"data": "Data"}):
    data: _Data


class _Entry(
    msgspec.Struct,
    rename={
        "uid": "PodUID",
        "container": "ContainerName",
        "resource": "ResourceName",
        "ids": "DeviceIDs",
        "answer": "AllocResp",
    },
):
    uid: _Name
    container: _Name
    resource: str
    # A list until Kubernetes 1.19; since then a list for each NUMA node.
    ids: list[str] | dict[str, list[str] | None] | None = None
    answer: str | None = None

    @property
    def all_ids(self) -> Iterable[str]:
        if isinstance(self.ids, dict):
            return chain.from_iterable(ids or () for ids in self.ids.values())
        return self.ids or ()


_document = msgspec.json.Decoder(_Document)
_entry = msgspec.json.Decoder(_Entry)


def read_checkpoint(data: bytes, path: Path, resources: GpuResources) -> FileClaims:
    """Return a claim for each container and resource, sorted, since the kubelet's order is random.

    Args:
        data: content of the checkpoint.
        path: path of the checkpoint, for messages and for the origin of the claims.
        resources: selects the extended resources that are GPUs.

    Raises:
        UnreadableError: the content is not a checkpoint, an entry has an unknown format, or there
            are more than `MAX_CLAIMED_DEVICES` devices. Only the kubelet writes the file, so one
            unreadable entry makes the whole file untrustworthy. The source then continues to use
            the previous content.
    """
    claims: dict[tuple[str, str, str], Claim] = {}
    complaints: list[str] = []
    held = 0
    if not data.strip():
        raise UnreadableError(f"{path}: is empty")
    # The entries are decoded one by one later, so that other threads can run in between.
    document = _decode(_document, data, f"{path}: is not a checkpoint of the kubelet")
    for number, piece in enumerate(document.data.entries or ()):
        problem = f"{path}: Data.PodDeviceEntries[{number}] has an unknown format"
        entry = _decode(_entry, piece, problem)
        if not resources.can_be_gpus(entry.resource):
            continue
        claim = _claim(entry, path, complaints)
        # Ids that the plugin answered with GPUs are ids of GPUs, whatever their form.
        is_answered = claim.origin.evidence == Evidence.PLUGIN_ANSWER
        if not is_answered and not resources.are_gpus(entry.resource, entry.all_ids):
            continue
        held += len(claim.devices) + len(claim.asked)
        if held > MAX_CLAIMED_DEVICES:
            raise UnreadableError(
                f"{path}: names more than {MAX_CLAIMED_DEVICES} devices, with a shared one counted "
                "for each of its containers; select fewer `resources`"
            )
        if claim.devices:
            claims[entry.uid, entry.container, entry.resource] = claim
    reported = tuple(sorted(complaints)[:_MAX_REPORTED])
    if len(complaints) > _MAX_REPORTED:
        reported += (f"{path}: {len(complaints) - _MAX_REPORTED} more problems of this kind",)
    return FileClaims(tuple(claims[key] for key in sorted(claims)), reported)


def _decode(
    decoder: msgspec.json.Decoder[_Decoded], data: bytes | msgspec.Raw, problem: str
) -> _Decoded:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"{problem}: {error}") from None


def _claim(entry: _Entry, path: Path, complaints: list[str]) -> Claim:
    place = f"{path} {entry.uid}/{entry.container}"
    ids = plugin_ids(entry.all_ids)
    response = None
    try:
        response = gpus_of(entry.answer or "")
    except InvalidResponseError as error:
        complaints.append(f"{place}: AllocResp for {entry.resource} {error}")
    devices, asked, evidence = ids, ids[:0], Evidence.KUBELET_IDS
    if response is not None and not agrees_with(ids, response):
        devices, asked, evidence = response.devices, ids, Evidence.PLUGIN_ANSWER
    subject = PartialRef(uid=entry.uid, container=entry.container)
    return Claim(subject, devices, None, None, Origin(evidence, place), entry.resource, asked)
