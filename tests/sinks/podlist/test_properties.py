"""After any sequence of events, the file lists the last holders, and the source reads them back."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Attribution, Evidence, Holder, Instant, PartialRef, RawDeviceId
from sinks.podlist.entry_encoder import Ids, entries_of
from sinks.podlist.shared_list import compose, entries_beside, parse_document
from sources.podlist.pod_list_file import read_pod_list
from tests.sinks.podlist.support import (
    GPUS,
    OLD_OWN_ENTRY,
    OTHER_ENTRY,
    SLICE,
    Bench,
    held,
    listing,
    podgpu_entries,
)
from tests.support.examples import examples

DEVICES = (*GPUS, SLICE)
# Names as Kubernetes allows them; some parts are missing.
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
def test_the_source_reads_the_holders_that_the_sink_wrote(
    attributions: list[Attribution], ids: Ids
) -> None:
    text = compose((), (entry.text for entry in entries_of(attributions, ids)))
    assert read_pod_list(text, Path("f"), "minor").claims == ()
    without_writer = text.replace(b',"writer":"podgpu"', b"")
    listed = read_pod_list(without_writer, Path("f"), "minor")
    assert listed.problems == ()
    claimed = {(claim.subject, device) for claim in listed.claims for device in claim.devices}
    assert claimed == {
        (PartialRef(ref.namespace, ref.pod, ref.container), device_id(attribution, ids))
        for attribution in attributions
        for holder in attribution.holders
        for ref in [holder.subject]
        if ref.namespace and ref.pod and ref.container
        if holder.evidence is not Evidence.POD_LIST_FILE
    }
    for claim in listed.claims:
        order = [device_id(attribution, ids) for attribution in attributions]
        assert sorted(claim.devices, key=order.index) == list(claim.devices)


def device_id(attribution: Attribution, ids: Ids) -> RawDeviceId:
    device = attribution.device
    if ids == "uuid" or device.mig is not None:
        return RawDeviceId("uuid", device.uuid)
    return RawDeviceId("minor", str(device.minor))


@given(ATTRIBUTIONS, st.lists(st.sampled_from([OTHER_ENTRY, OLD_OWN_ENTRY, '"x"', "[]"])))
@settings(max_examples=examples(40))
def test_entries_of_others_stay_unchanged(
    attributions: list[Attribution], existing: list[str]
) -> None:
    found = parse_document(listing(*existing).encode())
    own = entries_beside(found, entries_of(attributions, "uuid"))
    written = parse_document(compose(found.other_entries, own))
    assert (written.own_entries, written.other_entries) == (own, found.other_entries)
    assert [text.decode() for text in written.other_entries] == [
        x for x in existing if x != OLD_OWN_ENTRY
    ]


STEPS = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([(0,), (1,), (2, 0)]), max_size=2),
        st.sampled_from(["pause", "delete", "another writer", "incomplete"]),
    ),
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.sampled_from(["rename", "inplace"]))
def test_after_any_steps_the_file_lists_the_last_holders(steps: list[Any], write: str) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder) / "podlist.json", steps, write))


async def play(path: Path, steps: list[Any], write: str) -> None:
    last: dict[str, tuple[int, ...]] = {}
    async with Bench(path, write=write).running() as bench:
        for step in steps:
            match step:
                case "pause":
                    await asyncio.sleep(0.005)
                case "delete":
                    path.unlink(missing_ok=True)
                case "another writer":
                    path.write_text(listing(OLD_OWN_ENTRY, OTHER_ENTRY))
                case "incomplete":
                    path.write_text(f"[{OTHER_ENTRY}, {{")
                case _:
                    last = step
                    bench.set_holders(*(held(pod, *gpus) for pod, gpus in step.items()))
        bench.set_holders(*(held(pod, *gpus) for pod, gpus in last.items()))
        expected = [
            f"{pod}={','.join(gpu.uuid for gpu in GPUS if gpu.index in gpus)}"
            for pod, gpus in last.items()
        ]
        async with asyncio.timeout(5):
            # Damage is found at the next check, and an incomplete list is repaired later.
            while podgpu_entries(path) != sorted(expected):
                await asyncio.sleep(0.01)
                bench.clock.seconds += 10
                bench.show()
    found = json.loads(path.read_bytes())
    assert [entry["name"] for entry in found if entry.get("writer") == "koordlet"] in (
        [],
        ["theirs"],
    )
