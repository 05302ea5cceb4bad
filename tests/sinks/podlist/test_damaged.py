"""R4: a damaged byte in podgpu's own pod list."""

from pathlib import Path

import pytest

from pipeline.base.errors import TransientError
from sinks.podlist.entry_encoder import entries_of
from sinks.podlist.file_keeper import PodListFile
from sources.podlist.pod_list_file import BadDocumentError, read_pod_list
from tests.sinks.podlist.support import GPUS, OTHER_ENTRY, podgpu_entries
from tests.support.nodes import Node, claims, gpu, kubelet_claim


def written(path: Path, *, in_place: bool) -> PodListFile:
    """Write a list with an entry of podgpu and an entry of another writer."""
    path.write_text(f"[{OTHER_ENTRY}]")
    keeper = PodListFile(path, in_place=in_place)
    keeper.open()
    keeper.update(EXPECTED, repair=True)
    assert podgpu_entries(path) == [f"trainer={GPUS[0].uuid}"]
    return keeper


def node_with_holder() -> Node:
    node = Node()
    node.has(gpu(0))
    node.say(claims(kubelet_claim("trainer", GPUS[0].uuid)), "kubelet", "podresources")
    return node


EXPECTED = entries_of(node_with_holder().snapshot().layout.attributions.values(), "uuid")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at the start", "while it runs"])
@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_r4_a_damaged_byte_is_fixed_or_reported_in_one_line(
    when: str, tmp_path: Path, *, in_place: bool
) -> None:
    """A list that podgpu cannot read may be another program's. It stays, and is reported."""
    path = tmp_path / "podlist.json"
    keeper = written(path, in_place=in_place)
    undamaged, fixed = path.read_bytes(), 0
    for place in range(len(undamaged)):
        for value in (undamaged[place] ^ 0x80, undamaged[place] ^ 0x01, ord('"'), 0):
            if when == "at the start":
                keeper = PodListFile(path, in_place=in_place)
            path.write_bytes(undamaged[:place] + bytes([value]) + undamaged[place + 1 :])
            message = ""
            try:
                if when == "at the start":
                    keeper.open()
                keeper.update(EXPECTED, repair=True)
            except TransientError as error:
                message = str(error)
            if message:
                assert message.startswith(str(path))
                assert "\n" not in message
            else:
                data = path.read_bytes()
                # A damaged entry may look like another writer's, and then stays unchanged.
                assert EXPECTED[0].text in data or b'"trainer"' in data, (place, value)
                fixed += EXPECTED[0].text in data
            assert all("\n" not in warning for warning in keeper.take_warnings())
    assert fixed > 2 * len(undamaged)


def test_r4_a_reader_reports_any_damaged_byte_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "podlist.json"
    written(path, in_place=False)
    undamaged = path.read_bytes()
    for place in range(len(undamaged)):
        for value in (undamaged[place] ^ 0x80, undamaged[place] ^ 0x01, ord('"'), ord("9"), 0):
            data = undamaged[:place] + bytes([value]) + undamaged[place + 1 :]
            messages: tuple[str, ...]
            try:
                messages = read_pod_list(data, path, "minor").problems
            except BadDocumentError as error:
                messages = (str(error),)
            assert all(one.startswith(str(path)) and "\n" not in one for one in messages)
