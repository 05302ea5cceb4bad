"""R4: a damaged byte in the list that podgpu keeps."""

from pathlib import Path

import pytest

from pipeline.base.errors import TransientError
from sinks.podlist.file_keeper import PodListFile
from sinks.podlist.list_entries import entries_of
from sources.podlist.list_splitter import BadDocumentError
from sources.podlist.pod_list_file import read_pod_list
from tests.sinks.podlist.support import FOREIGN, GPUS, ours
from tests.support.nodes import Node, claims, gpu, kubelet_claim


def written(path: Path, *, in_place: bool) -> PodListFile:
    """A list with an entry of podgpu's and one of another's."""
    path.write_text(f"[{FOREIGN}]")
    keeper = PodListFile(path, in_place=in_place)
    keeper.open()
    keeper.update(MINE, repair=True)
    assert ours(path) == [f"trainer={GPUS[0].uuid}"]
    return keeper


def mine() -> Node:
    node = Node()
    node.has(gpu(0))
    node.say(claims(kubelet_claim("trainer", GPUS[0].uuid)), "kubelet", "podresources")
    return node


MINE = entries_of(mine().snapshot().layout.attributions.values(), "uuid")


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_r4_a_damaged_byte_is_fixed_or_reported_in_one_line(
    when: str, tmp_path: Path, *, in_place: bool
) -> None:
    """A list that podgpu can't understand is somebody's: it is left as it is, and named."""
    path = tmp_path / "podlist.json"
    keeper = written(path, in_place=in_place)
    sound, fixed = path.read_bytes(), 0
    for place in range(len(sound)):
        for value in (sound[place] ^ 0x80, sound[place] ^ 0x01, ord('"'), 0):
            if when == "at the start":
                keeper = PodListFile(path, in_place=in_place)
            path.write_bytes(sound[:place] + bytes([value]) + sound[place + 1 :])
            complaint = ""
            try:
                if when == "at the start":
                    keeper.open()
                keeper.update(MINE, repair=True)
            except TransientError as error:
                complaint = str(error)
            if complaint:
                assert complaint.startswith(str(path))
                assert "\n" not in complaint
            else:
                data = path.read_bytes()
                # What was damaged may pass for another's entry, and is left as it is.
                assert MINE[0].text in data or b'"trainer"' in data, (place, value)
                fixed += MINE[0].text in data
            assert all("\n" not in remark for remark in keeper.take_warnings())
    assert fixed > 2 * len(sound)


def test_r4_whatever_byte_is_damaged_who_reads_it_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "podlist.json"
    written(path, in_place=False)
    sound = path.read_bytes()
    for place in range(len(sound)):
        for value in (sound[place] ^ 0x80, sound[place] ^ 0x01, ord('"'), ord("9"), 0):
            data = sound[:place] + bytes([value]) + sound[place + 1 :]
            complaints: tuple[str, ...]
            try:
                complaints = read_pod_list(data, path, "minor").problems
            except BadDocumentError as error:
                complaints = (str(error),)
            assert all(one.startswith(str(path)) and "\n" not in one for one in complaints)
