"""Makes claims out of the bytes of the kubelet's checkpoint."""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline.component.claim_file_reader import FileClaims
from pipeline.files import UnreadableError
from pipeline.model import Claim, Evidence, Origin, PartialRef
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES, plugin_ids
from sources.checkpoint.allocate_response import InvalidResponseError, agrees_with, gpus_of

_MAX_REPORTED = 3

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
    # A list until Kubernetes 1.19, since then a list for each NUMA node.
    ids: list[str] | dict[str, list[str] | None] | None = None
    answer: str | None = None

    @property
    def all_ids(self) -> Iterable[str]:
        if isinstance(self.ids, dict):
            return chain.from_iterable(ids or () for ids in self.ids.values())
        return self.ids or ()


_document = msgspec.json.Decoder(_Document)
_entry = msgspec.json.Decoder(_Entry)


def read_checkpoint(data: bytes, path: Path, wanted: Callable[[str], bool]) -> FileClaims:
    """Return a claim for each container and resource, sorted: the kubelet's order is random.

    Args:
        data: the file's bytes.
        path: for messages and for the claims' origin.
        wanted: whether a resource is of interest.

    Raises:
        UnreadableError: it isn't a checkpoint, an entry of it is of an unknown form, or it names
            more devices than any node has containers and devices for. The kubelet alone writes it,
            so that one entry that can't be read casts doubt on all: what was read before stands.
    """
    claims: dict[tuple[str, str, str], Claim] = {}
    complaints: list[str] = []
    held = 0
    for number, piece in enumerate(_pieces(data, path)):
        entry = _read(piece, path, number)
        if not wanted(entry.resource):
            continue
        claim = _claim(entry, path, complaints)
        held += len(claim.devices) + len(claim.asked)
        if held > MAX_CLAIMED_DEVICES:
            raise UnreadableError(
                f"{path}: its containers hold more than {MAX_CLAIMED_DEVICES} devices, a shared "
                "one counted for each of them; name fewer `resources`"
            )
        if claim.devices:
            claims[entry.uid, entry.container, entry.resource] = claim
    told = tuple(sorted(complaints)[:_MAX_REPORTED])
    if len(complaints) > _MAX_REPORTED:
        told += (f"{path}: {len(complaints) - _MAX_REPORTED} more of this sort",)
    return FileClaims(tuple(claims[key] for key in sorted(claims)), told)


def _pieces(data: bytes, path: Path) -> list[msgspec.Raw]:
    if not data.strip():
        raise UnreadableError(f"{path}: is empty")
    try:
        # Entry by entry, so that others get their turn: of a large file they are nearly all.
        return _document.decode(data).data.entries or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"{path}: is no checkpoint of the kubelet: {error}") from None


def _read(piece: msgspec.Raw, path: Path, number: int) -> _Entry:
    try:
        return _entry.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(
            f"{path}: Data.PodDeviceEntries[{number}] is of an unknown form: {error}"
        ) from None


def _claim(entry: _Entry, path: Path, complaints: list[str]) -> Claim:
    place = f"{path} {entry.uid}/{entry.container}"
    ids = plugin_ids(entry.all_ids)
    answer = None
    try:
        answer = gpus_of(entry.answer or "")
    except InvalidResponseError as error:
        complaints.append(f"{place}: AllocResp for {entry.resource} {error}")
    devices, asked, evidence = ids, ids[:0], Evidence.KUBELET_IDS
    if answer is not None and not agrees_with(ids, answer):
        devices, asked, evidence = answer.devices, ids, Evidence.PLUGIN_ANSWER
    subject = PartialRef(uid=entry.uid, container=entry.container)
    return Claim(subject, devices, None, None, Origin(evidence, place), entry.resource, asked)
