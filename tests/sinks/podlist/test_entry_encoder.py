"""Holders as entries of the file, byte by byte, because other programs read it.

`PODGPU_WRITE_GOLDEN=1` writes the golden files again; check the difference before you commit it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from pipeline.model import (
    Attribution,
    Claim,
    Device,
    Evidence,
    Holder,
    Instant,
    Origin,
    PartialRef,
    RawDeviceId,
)
from sinks.podlist.entry_encoder import Ids, entries_of
from sinks.podlist.shared_list import compose
from tests.sinks.podlist.support import GPUS, SLICE, held
from tests.support.nodes import Node, claim, claims, kubelet_claim

FOLDER = Path(__file__).parents[2] / "golden" / "podlist"


def attributed(*reported: Claim) -> list[Attribution]:
    """Return the attributions that the join makes of the kubelet's claims."""
    node = Node()
    node.has(*GPUS, SLICE)
    node.say(claims(*reported), "kubelet", "podresources")
    return list(node.snapshot().layout.attributions.values())


def known_by_uid_only() -> Claim:
    subject = PartialRef(uid="3f6a", container="main")
    devices = (RawDeviceId("uuid", GPUS[1].uuid),)
    return Claim(subject, devices, None, None, Origin(Evidence.PLUGIN_ANSWER))


def without_a_minor() -> list[Attribution]:
    holder = held_by(PartialRef("ml", "a", "main"))
    return [Attribution(Device("GPU-x", index=4), present=True, holders=(holder,))]


def same_name_twice() -> list[Attribution]:
    old, new = (held_by(PartialRef("ml", "a", "main", uid)) for uid in ("1", "2"))
    return [Attribution(device, present=True, holders=(old, new)) for device in GPUS[:2]]


def held_by(subject: PartialRef, evidence: Evidence = Evidence.KUBELET_IDS) -> Holder:
    return Holder(subject, None, Instant(0, 0), "kubelet", evidence)


SCENES: dict[str, Callable[[], list[Attribution]]] = {
    "no-holders": attributed,
    "several": lambda: attributed(
        held("trainer", 1, 0),
        kubelet_claim("chat", f"{GPUS[2].uuid}::0"),
        kubelet_claim("another", f"{GPUS[2].uuid}::1", container="sidecar"),
        kubelet_claim("another", f"{GPUS[2].uuid}::1"),
        kubelet_claim("slice", SLICE.uuid, resource="nvidia.com/mig-1g.10gb"),
    ),
    "names-not-all-known": lambda: attributed(
        held("a", 0),
        known_by_uid_only(),
        claim("whole-pod", GPUS[2].uuid, container="", evidence=Evidence.SCHEDULER_ANNOTATION),
    ),
    "by-a-pod-list": lambda: attributed(held("a", 0), claim("theirs", GPUS[1].uuid)),
    "no-minor-number": without_a_minor,
    "two-pods-of-one-name": same_name_twice,
}


@pytest.mark.parametrize("ids", get_args(Ids))
@pytest.mark.parametrize("scene", SCENES)
def test_entries_equal_the_golden_file(scene: str, ids: Ids) -> None:
    text = compose((), [entry.text for entry in entries_of(SCENES[scene](), ids)])
    file = FOLDER / f"{scene}.{ids}.json"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    assert text.decode() == file.read_bytes().decode()


def test_a_holder_with_a_name_that_is_not_valid_text_has_no_entry() -> None:
    holders = (held_by(PartialRef("ml", "bad-\udc80", "main")), held_by(PartialRef("ml", "b", "c")))
    [entry] = entries_of([Attribution(GPUS[0], present=True, holders=holders)], "uuid")
    assert entry.names == ("ml", "b", "c")


@pytest.mark.parametrize("evidence", Evidence)
def test_holders_by_any_evidence_except_a_pod_list_have_an_entry(evidence: Evidence) -> None:
    holder = held_by(PartialRef("ml", "a", "main"), evidence)
    found = entries_of([Attribution(GPUS[0], present=True, holders=(holder,))], "uuid")
    assert bool(found) is (evidence is not Evidence.POD_LIST_FILE)


def test_a_gpu_that_is_no_longer_present_is_still_listed() -> None:
    holder = held_by(PartialRef("ml", "a", "main"))
    assert entries_of([Attribution(GPUS[0], present=False, holders=(holder,))], "uuid")
