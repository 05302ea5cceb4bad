"""Parsing of the option `devices`, and which devices of a node it selects."""

import re

import pytest

from sources.nvml.device_filter import EVERYTHING, DeviceFilter, instance_numbers
from sources.nvml.options import Options

FLEXIBLE = DeviceFilter(True, None, None)

GOOD = [
    ("all", EVERYTHING),
    ("f", FLEXIBLE),
    ("g", DeviceFilter(False, (), None)),
    ("i", DeviceFilter(False, None, ())),
    ("g:0", DeviceFilter(False, (0,), None)),
    ("g:0,2-3", DeviceFilter(False, (0, 2, 3), None)),
    ("g:3,1,2,3", DeviceFilter(False, (1, 2, 3), None)),
    ("g:2-2", DeviceFilter(False, (2,), None)),
    ("i:0,2-4", DeviceFilter(False, None, (0, 2, 3, 4))),
    ("g+i", EVERYTHING),
    ("i+g", EVERYTHING),
    ("g:0+i", DeviceFilter(False, (0,), ())),
    ("g+i:7", DeviceFilter(False, (), (7,))),
    ("i:7+g:1", DeviceFilter(False, (1,), (7,))),
]


@pytest.mark.parametrize(("text", "selection"), GOOD)
def test_the_syntax_is_parsed(text: str, selection: DeviceFilter) -> None:
    assert DeviceFilter.parse(text) == selection
    assert Options(devices=text).devices == text


BAD = [
    ("", "does not select devices; write all, f, g, i, g:0,2-3"),
    ("x", "does not select devices"),
    ("F", "does not select devices"),
    ("gpu", "does not select devices"),
    ("all:0", "does not select devices"),
    ("all+g", "does not select devices"),
    ("g+", "does not select devices"),
    ("f:0", "f takes no numbers"),
    ("f+g", "f cannot be combined"),
    ("g+f", "f cannot be combined"),
    ("g:0+g:1", "has g twice; write the numbers in one list"),
    ("i+i", "has i twice"),
    ("g:", "a number is missing; write for example g:0,2-3"),
    ("g:0,", "a number is missing"),
    ("g:0:1", "'0:1' is not a number"),
    ("g:a", "'a' is not a number"),
    ("g: 0", "' 0' is not a number"),
    ("g:-1", "'-1' is not a number"),
    ("g:1-2-3", "'1-2-3' is not a number"),
    ("g:٣", "is not a number"),
    ("g:3-1", "3-1 is descending; write 1-3"),
    ("g:0-9999", "9999 is too high; the highest number is 4095"),
    ("g:99999999999999999999", "is not a number"),
]


@pytest.mark.parametrize(("text", "reason"), BAD)
def test_invalid_syntax_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        Options(devices=text)
    assert str(raised.value).startswith(repr(text))


# Text, index of a GPU, whether that GPU is read.
HAS_GPU = [
    ("all", 0, True),
    ("f", 0, True),
    ("g", 3, True),
    ("g:0,2", 2, True),
    ("g:0,2", 1, False),
    ("i", 0, False),
    ("i:7", 7, False),
    ("g:0+i:7", 0, True),
]


@pytest.mark.parametrize(("text", "index", "read"), HAS_GPU)
def test_gpus_are_selected_by_index(text: str, index: int, read: bool) -> None:
    assert DeviceFilter.parse(text).has_gpu(index) is read


HAS_INSTANCE = [
    ("all", 7, True),
    ("f", 7, True),
    ("g", 7, False),
    ("g:7", 7, False),
    ("i", 7, True),
    ("i:7", 7, True),
    ("i:7", 8, False),
    ("g:0+i:7", 8, False),
]


@pytest.mark.parametrize(("text", "number", "read"), HAS_INSTANCE)
def test_instances_are_selected_by_number(text: str, number: int, read: bool) -> None:
    assert DeviceFilter.parse(text).has_instance(number) is read


NUMBERS = [
    ("no instances", 0, [], {}),
    (
        "equal profiles by id",
        0,
        [(9, "1g.10gb"), (7, "1g.10gb"), (8, "1g.10gb")],
        {7: 0, 8: 1, 9: 2},
    ),
    ("numbers of the third GPU", 2, [(7, "1g.10gb"), (8, "1g.10gb")], {7: 14, 8: 15}),
    (
        "small profiles first",
        1,
        [(1, "3g.40gb"), (5, "2g.20gb"), (13, "1g.10gb")],
        {13: 7, 5: 8, 1: 9},
    ),
    (
        "profiles with extras last",
        0,
        [(7, "1g.10gb+me"), (2, "3g.40gb"), (8, "1g.10gb")],
        {8: 0, 2: 1, 7: 2},
    ),
    (
        "compute instances share their GPU instance's number",
        0,
        [(1, "1c.3g.40gb"), (1, "1c.3g.40gb"), (2, "3g.40gb")],
        {1: 0, 2: 1},
    ),
    ("unknown profile", 0, [(1, ""), (2, "1g.10gb")], {1: 0, 2: 1}),
]


@pytest.mark.parametrize(
    ("index", "instances", "numbers"), [c[1:] for c in NUMBERS], ids=[c[0] for c in NUMBERS]
)
def test_gpu_instances_are_numbered_by_gpu_size_and_id(
    index: int, instances: list[tuple[int, str]], numbers: dict[int, int]
) -> None:
    assert instance_numbers(index, 7, instances) == numbers


CONTRADICTIONS = [
    # Text, number of GPUs, instances, whether a GPU has MIG mode on, the conflict.
    ("all", 0, [], False, ""),
    ("f", 4, [], False, ""),
    ("f", 4, [7], True, ""),
    ("g", 4, [7], True, ""),
    ("g:3", 4, [], False, ""),
    ("g:1,4", 4, [], False, "there is no GPU 4: the GPUs are 0-3"),
    ("g:0", 0, [], False, "there is no GPU 0: there are no GPUs"),
    ("i", 4, [], False, "i is for MIG instances, and no GPU has MIG mode on; write f or g"),
    ("g:0+i", 4, [], False, "i is for MIG instances"),
    ("g+i", 4, [], False, ""),
    ("i", 4, [], True, ""),
    ("i", 4, [], None, ""),
    ("i:7", 4, [7, 8], True, ""),
    ("i:9", 4, [7, 8, 14], True, "there is no MIG instance 9: the MIG instances are 7-8,14"),
    ("i:0", 4, [], True, "there is no MIG instance 0: there are no MIG instances"),
    ("i:9", 4, [7, 8], None, ""),
]


@pytest.mark.parametrize(("text", "count", "instances", "any_mig", "conflict"), CONTRADICTIONS)
def test_selections_that_contradict_the_node_are_reported(
    text: str, count: int, instances: list[int], any_mig: bool | None, conflict: str
) -> None:
    found = DeviceFilter.parse(text).conflict_with_node(count, instances, any_mig=any_mig)
    assert found.startswith(conflict) if conflict else found == ""
