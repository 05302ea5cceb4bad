"""What is others' stays as it is, letter for letter, whatever it looks like."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.podlist.document import compose, entries_beside, parse_document
from sinks.podlist.list_entries import Entry
from sinks.podlist.list_splitter import NoListError
from sources.podlist.pod_list_file import read_pod_list
from tests.sinks.podlist.support import FOREIGN, OURS_OF_BEFORE, listing

VERBATIM = {
    "unknown keys and white space": FOREIGN,
    "nothing we know": '{"a":[{"b":[]},"]"],"writer":["podgpu"]}',
    "no object": "17",
    "a text with brackets": '"[{\\"writer\\":\\"podgpu\\"},]"',
    "half a surrogate pair": '{"name":"\\ud800","b":"\\\\ud800"}',
    "a whole pair": '{"name":"\\ud83d\\ude00"}',
    "a large number": '{"a":1e999,"b":123456789012345678901234567890}',
    "a key twice": '{"writer":"podgpu","writer":"koordlet"}',
}


@pytest.mark.parametrize("theirs", VERBATIM.values(), ids=VERBATIM)
def test_others_are_kept_letter_for_letter(theirs: str) -> None:
    text = listing(OURS_OF_BEFORE, theirs, OURS_OF_BEFORE, FOREIGN)
    found = parse_document(text.encode())
    assert found.other_entries == (theirs.encode(), FOREIGN.encode())
    assert found.own_entries == (OURS_OF_BEFORE.encode(),) * 2
    again = parse_document(compose(found.other_entries, found.own_entries[:1]))
    assert (again.other_entries, again.own_entries, again.is_complete) == (
        found.other_entries,
        found.own_entries[:1],
        True,
    )


def test_what_is_no_utf8_is_kept_too() -> None:
    theirs = b'{"name":"\xff\xfe"}'
    found = parse_document(b"[" + theirs + b"]")
    assert (found.other_entries, found.is_complete) == ((theirs,), True)


@pytest.mark.parametrize("text", ["[]", " [ ]\n", "null", "\ufeff[]"])
def test_empty_lists(text: str) -> None:
    found = parse_document(text.encode())
    assert (found.other_entries, found.own_entries, found.is_complete) == ((), (), True)


TORN = {
    "": 0,
    "\n": 0,
    "\0\0\0": 0,
    "[": 0,
    "[\0\0": 0,
    f"[{FOREIGN}": 1,
    f"[{FOREIGN},": 1,
    f"[{FOREIGN},]": 1,
    f"[{FOREIGN},{FOREIGN[:-9]}": 1,
    f'[{FOREIGN},{{"name": "x", "gpu_l': 1,
    f"[{FOREIGN}]\nwriter": 1,
    f'[{FOREIGN},{{"a": }},{FOREIGN}]': 1,
    f"[{FOREIGN},{OURS_OF_BEFORE},{FOREIGN}": 2,
}


@pytest.mark.parametrize("text", TORN)
def test_of_a_torn_list_the_entries_before_the_tear_are_kept(text: str) -> None:
    found = parse_document(text.encode())
    assert not found.is_complete
    assert found.other_entries == (FOREIGN.encode(),) * TORN[text]


@pytest.mark.parametrize(
    "text", ["{}", '{"pods":[]}', "apiVersion: v1", "\x7fELF", "[1, 2", '"["', "17", "]", "[x"]
)
def test_a_file_of_another_sort_is_not_taken_for_a_pod_list(text: str) -> None:
    with pytest.raises(NoListError):
        parse_document(text.encode())


@pytest.mark.parametrize("text", ["[" * 5_000, "[{" + '"a":{' * 5_000, '[{"a":' + "[" * 100_000])
def test_what_is_nested_without_end_ends(text: str) -> None:
    try:
        assert not parse_document(text.encode()).is_complete
    except NoListError:
        assert text.startswith("[[")


def entry(pod: str, *devices: tuple[str, ...]) -> Entry:
    ids = tuple(frozenset(names) for names in devices)
    return Entry(("ml", pod, "main"), ids, pod.encode())


BESIDE: dict[str, tuple[list[Any], bool]] = {
    "the same devices": (["GPU-a", "GPU-b"], False),
    "in another order and form": ([1, "GPU-a"], False),
    "as a text, with zeros": (["GPU-b", "00"], False),
    "more devices": (["GPU-a", "GPU-b", "GPU-c"], False),
    "some of them": (["GPU-a"], True),
    "others": (["GPU-c"], True),
    "none": ([], True),
    "nothing that is a device": ([None, True, 0.5, {}, "GPU-b"], True),
}


@pytest.mark.parametrize(("ids", "written"), BESIDE.values(), ids=BESIDE)
def test_what_another_says_already_is_not_said_again(ids: list[Any], written: bool) -> None:
    theirs = {"namespace": "ml", "name": "a", "container": "main", "gpu_list": ids}
    document = parse_document(json.dumps([theirs]).encode())
    ours = entry("a", ("GPU-a", "0"), ("GPU-b", "1")), entry("b", ("GPU-a", "0"))
    assert entries_beside(document, ours) == ((b"a", b"b") if written else (b"b",))


def test_two_entries_of_others_count_together() -> None:
    theirs = [
        {"namespace": "ml", "name": "a", "container": "main", "gpu_list": [device]}
        for device in ("GPU-a", "GPU-b")
    ]
    document = parse_document(json.dumps(theirs).encode())
    assert entries_beside(document, [entry("a", ("GPU-a",), ("GPU-b",))]) == ()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(_VALUES), st.sampled_from([None, 1]), st.booleans())
def test_any_list_is_taken_apart_and_put_together(
    values: list[Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    try:
        data = text.encode()
        found = parse_document(data)
    except (UnicodeEncodeError, NoListError):
        assert re.search("[\ud800-\udfff]|NaN|Infinity", text)
        return
    if found.is_complete:
        again = json.loads(compose(found.other_entries, found.own_entries).decode())
        assert again == json.loads(text)


@given(st.binary(), st.integers(0, 200))
def test_no_bytes_are_too_strange(junk: bytes, cut: int) -> None:
    for data in (junk, b"[{" + junk, listing(FOREIGN, OURS_OF_BEFORE).encode()[:cut] + junk):
        try:
            found = parse_document(data)
        except NoListError:
            continue
        text = compose(found.other_entries, found.own_entries)
        assert parse_document(text).other_entries == found.other_entries
        read_pod_list(text, Path("f"), "minor")
