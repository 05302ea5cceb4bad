"""Whatever happens, the file says what was said last, and the source reads back what was held."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Attribution, Evidence, Holder, Instant, PartialRef, RawDeviceId
from sinks.podlist.document import compose, entries_beside, parse_document
from sinks.podlist.list_entries import Ids, entries_of
from sources.podlist.pod_list_file import read_pod_list
from tests.sinks.podlist.support import (
    FOREIGN,
    GPUS,
    OURS_OF_BEFORE,
    SLICE,
    Bench,
    held,
    listing,
    ours,
)

DEVICES = (*GPUS, SLICE)
# As Kubernetes has them, and as it never would; some parts missing.
NAMES = st.one_of(
    st.just(""),
    st.from_regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", fullmatch=True).map(lambda n: n[:63]),
)
SUBJECTS = st.builds(PartialRef, NAMES, NAMES, NAMES, st.sampled_from(["", "1", "2"]))
HOLDERS = st.builds(
    Holder,
    SUBJECTS,
    st.none(),
    st.just(Instant(0, 0)),
    st.just("kubelet"),
    st.sampled_from(Evidence),
)
ATTRIBUTIONS = st.lists(st.lists(HOLDERS, max_size=3), min_size=4, max_size=4).map(
    lambda held: [
        Attribution(device, present=True, holders=tuple(holders))
        for device, holders in zip(DEVICES, held, strict=True)
    ]
)


@given(ATTRIBUTIONS, st.sampled_from(["uuid", "minor"]))
def test_the_source_reads_back_who_holds_what(attributions: list[Attribution], ids: Ids) -> None:
    text = compose((), (entry.text for entry in entries_of(attributions, ids)))
    assert read_pod_list(text, Path("f"), "minor").claims == ()
    anybody_s = text.replace(b',"writer":"podgpu"', b"")
    listed = read_pod_list(anybody_s, Path("f"), "minor")
    assert listed.problems == ()
    said = {(claim.subject, device) for claim in listed.claims for device in claim.devices}
    assert said == {
        (PartialRef(who.namespace, who.pod, who.container), called(attribution, ids))
        for attribution in attributions
        for holder in attribution.holders
        for who in [holder.subject]
        if who.namespace and who.pod and who.container
        if holder.evidence is not Evidence.POD_LIST_FILE
    }
    for claim in listed.claims:
        order = [called(attribution, ids) for attribution in attributions]
        assert sorted(claim.devices, key=order.index) == list(claim.devices)


def called(attribution: Attribution, ids: Ids) -> RawDeviceId:
    device = attribution.device
    if ids == "uuid" or device.mig is not None:
        return RawDeviceId("uuid", device.uuid)
    return RawDeviceId("minor", str(device.minor))


@given(ATTRIBUTIONS, st.lists(st.sampled_from([FOREIGN, OURS_OF_BEFORE, '"x"', "[]"])))
def test_whatever_stands_there_already(attributions: list[Attribution], there: list[str]) -> None:
    found = parse_document(listing(*there).encode())
    ours = entries_beside(found, entries_of(attributions, "uuid"))
    again = parse_document(compose(found.other_entries, ours))
    assert (again.own_entries, again.other_entries) == (ours, found.other_entries)
    assert [text.decode() for text in again.other_entries] == [
        x for x in there if x != OURS_OF_BEFORE
    ]


STEPS = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([(0,), (1,), (2, 0)]), max_size=2),
        st.sampled_from(["pause", "delete", "foreign", "torn"]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from(["rename", "inplace"]))
def test_any_order_ends_with_what_was_said_last(steps: list[Any], write: str) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder) / "podlist.json", steps, write))


async def play(path: Path, steps: list[Any], write: str) -> None:
    last: dict[str, tuple[int, ...]] = {}
    async with Bench(path, write=write).keeping() as bench:
        for step in steps:
            match step:
                case "pause":
                    await asyncio.sleep(0.005)
                case "delete":
                    path.unlink(missing_ok=True)
                case "foreign":
                    path.write_text(listing(OURS_OF_BEFORE, FOREIGN))
                case "torn":
                    path.write_text(f"[{FOREIGN}, {{")
                case _:
                    last = step
                    bench.holds(*(held(pod, *gpus) for pod, gpus in step.items()))
        bench.holds(*(held(pod, *gpus) for pod, gpus in last.items()))
        expected = [
            f"{pod}={','.join(gpu.uuid for gpu in GPUS if gpu.index in gpus)}"
            for pod, gpus in last.items()
        ]
        async with asyncio.timeout(5):
            # What was spoilt meanwhile is found at the next look, a list that stays torn later.
            while ours(path) != sorted(expected):
                await asyncio.sleep(0.01)
                bench.clock.seconds += 10
                bench.show()
    found = json.loads(path.read_bytes())
    assert [entry["name"] for entry in found if entry.get("writer") == "koordlet"] in (
        [],
        ["theirs"],
    )
