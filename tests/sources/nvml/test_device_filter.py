"""The words of the option `devices`: what they mean, and what they mean on a node."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.nvml.device_filter import EVERYTHING, MAX_ID, DeviceFilter, instance_numbers
from sources.nvml.options import Options

FLEXIBLE = DeviceFilter(True, None, None)

GOOD = [
    ("all", EVERYTHING, "all"),
    ("f", FLEXIBLE, "f"),
    ("g", DeviceFilter(False, (), None), "g"),
    ("i", DeviceFilter(False, None, ()), "i"),
    ("g:0", DeviceFilter(False, (0,), None), "g:0"),
    ("g:0,2-3", DeviceFilter(False, (0, 2, 3), None), "g:0,2-3"),
    ("g:3,1,2,3", DeviceFilter(False, (1, 2, 3), None), "g:1-3"),
    ("g:2-2", DeviceFilter(False, (2,), None), "g:2"),
    ("i:0,2-4", DeviceFilter(False, None, (0, 2, 3, 4)), "i:0,2-4"),
    ("g+i", EVERYTHING, "all"),
    ("i+g", EVERYTHING, "all"),
    ("g:0+i", DeviceFilter(False, (0,), ()), "g:0+i"),
    ("g+i:7", DeviceFilter(False, (), (7,)), "g+i:7"),
    ("i:7+g:1", DeviceFilter(False, (1,), (7,)), "g:1+i:7"),
]


@pytest.mark.parametrize(("text", "choice", "shortest"), GOOD)
def test_words(text: str, choice: DeviceFilter, shortest: str) -> None:
    assert DeviceFilter.parse(text) == choice
    assert str(choice) == shortest
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


@pytest.mark.parametrize(("text", "why"), BAD)
def test_what_means_nothing_is_refused_with_the_fix(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as raised:
        Options(devices=text)
    assert str(raised.value).startswith(repr(text))


ids = st.none() | st.frozensets(st.integers(0, MAX_ID), max_size=30).map(
    lambda found: tuple(sorted(found))
)
choices = st.just(FLEXIBLE) | st.builds(DeviceFilter, st.just(False), ids, ids).filter(
    lambda choice: (choice.gpus, choice.instances) != (None, None)
)


@given(choices)
def test_a_choice_is_read_as_it_was_written(choice: DeviceFilter) -> None:
    assert DeviceFilter.parse(str(choice)) == choice


@given(st.text(alphabet="afgil:+-,0123", max_size=12))
def test_whatever_is_read_means_the_same_when_written_again(text: str) -> None:
    try:
        choice = DeviceFilter.parse(text)
    except ValueError:
        return
    assert DeviceFilter.parse(str(choice)) == choice


# A GPU by its index: is it read?
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
def test_which_gpus_are_read(text: str, index: int, read: bool) -> None:
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
def test_which_instances_are_read(text: str, number: int, read: bool) -> None:
    assert DeviceFilter.parse(text).has_instance(number) is read


NUMBERS = [
    ("none", 0, [], {}),
    ("alike, by id", 0, [(9, "1g.10gb"), (7, "1g.10gb"), (8, "1g.10gb")], {7: 0, 8: 1, 9: 2}),
    ("of the third GPU", 2, [(7, "1g.10gb"), (8, "1g.10gb")], {7: 14, 8: 15}),
    (
        "small ones first",
        1,
        [(1, "3g.40gb"), (5, "2g.20gb"), (13, "1g.10gb")],
        {13: 7, 5: 8, 1: 9},
    ),
    ("extras last", 0, [(7, "1g.10gb+me"), (2, "3g.40gb"), (8, "1g.10gb")], {8: 0, 2: 1, 7: 2}),
    (
        "compute instances share the number of theirs",
        0,
        [(1, "1c.3g.40gb"), (1, "1c.3g.40gb"), (2, "3g.40gb")],
        {1: 0, 2: 1},
    ),
    ("one without a known profile", 0, [(1, ""), (2, "1g.10gb")], {1: 0, 2: 1}),
]


@pytest.mark.parametrize(
    ("index", "instances", "numbers"), [c[1:] for c in NUMBERS], ids=[c[0] for c in NUMBERS]
)
def test_gpu_instances_are_numbered_by_gpu_size_and_id(
    index: int, instances: list[tuple[int, str]], numbers: dict[int, int]
) -> None:
    assert instance_numbers(index, 7, instances) == numbers


CONTRADICTIONS = [
    # text, GPUs, instances, MIG mode somewhere, what is wrong
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


@pytest.mark.parametrize(("text", "count", "cut", "any_mig", "why"), CONTRADICTIONS)
def test_what_can_t_be_had_on_this_node(
    text: str, count: int, cut: list[int], any_mig: bool | None, why: str
) -> None:
    said = DeviceFilter.parse(text).conflict_with_node(count, cut, any_mig=any_mig)
    assert said.startswith(why) if why else said == ""
