"""Entries of other writers stay unchanged, byte by byte, regardless of their content."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.podlist.entry_encoder import Entry
from sinks.podlist.shared_list import NoListError, compose, entries_beside, parse_document
from sources.podlist.pod_list_file import read_pod_list
from tests.sinks.podlist.support import OLD_OWN_ENTRY, OTHER_ENTRY, listing
from tests.support.examples import examples

VERBATIM = {
    "unknown keys and white space": OTHER_ENTRY,
    "only unknown keys": '{"a":[{"b":[]},"]"],"writer":["podgpu"]}',
    "not an object": "17",
    "a text with brackets": '"[{\\"writer\\":\\"podgpu\\"},]"',
    "half a surrogate pair": '{"name":"\\ud800","b":"\\\\ud800"}',
    "a whole pair": '{"name":"\\ud83d\\ude00"}',
    "a large number": '{"a":1e999,"b":123456789012345678901234567890}',
    "a key twice": '{"writer":"podgpu","writer":"koordlet"}',
}


@pytest.mark.parametrize("other_entry", VERBATIM.values(), ids=VERBATIM)
def test_entries_of_others_are_kept_byte_by_byte(other_entry: str) -> None:
    text = listing(OLD_OWN_ENTRY, other_entry, OLD_OWN_ENTRY, OTHER_ENTRY)
    found = parse_document(text.encode())
    assert found.other_entries == (other_entry.encode(), OTHER_ENTRY.encode())
    assert found.own_entries == (OLD_OWN_ENTRY.encode(),) * 2
    written = parse_document(compose(found.other_entries, found.own_entries[:1]))
    assert (written.other_entries, written.own_entries, written.is_complete) == (
        found.other_entries,
        found.own_entries[:1],
        True,
    )


def test_an_entry_of_another_that_is_not_utf8_is_kept() -> None:
    other_entry = b'{"name":"\xff\xfe"}'
    found = parse_document(b"[" + other_entry + b"]")
    assert (found.other_entries, found.is_complete) == ((other_entry,), True)


@pytest.mark.parametrize("text", ["[]", " [ ]\n", "null", "\ufeff[]"])
def test_an_empty_list_is_complete_and_has_no_entries(text: str) -> None:
    found = parse_document(text.encode())
    assert (found.other_entries, found.own_entries, found.is_complete) == ((), (), True)


INCOMPLETE = {
    "": 0,
    "\n": 0,
    "\0\0\0": 0,
    "[": 0,
    "[\0\0": 0,
    f"[{OTHER_ENTRY}": 1,
    f"[{OTHER_ENTRY},": 1,
    f"[{OTHER_ENTRY},]": 1,
    f"[{OTHER_ENTRY},{OTHER_ENTRY[:-9]}": 1,
    f'[{OTHER_ENTRY},{{"name": "x", "gpu_l': 1,
    f"[{OTHER_ENTRY}]\nwriter": 1,
    f'[{OTHER_ENTRY},{{"a": }},{OTHER_ENTRY}]': 1,
    f"[{OTHER_ENTRY},{OLD_OWN_ENTRY},{OTHER_ENTRY}": 2,
}


@pytest.mark.parametrize("text", INCOMPLETE)
def test_of_an_incomplete_list_the_complete_entries_are_kept(text: str) -> None:
    found = parse_document(text.encode())
    assert not found.is_complete
    assert found.other_entries == (OTHER_ENTRY.encode(),) * INCOMPLETE[text]


@pytest.mark.parametrize(
    "text", ["{}", '{"pods":[]}', "apiVersion: v1", "\x7fELF", "[1, 2", '"["', "17", "]", "[x"]
)
def test_a_file_that_is_not_a_pod_list_is_refused(text: str) -> None:
    with pytest.raises(NoListError):
        parse_document(text.encode())


@pytest.mark.parametrize("text", ["[" * 5_000, "[{" + '"a":{' * 5_000, '[{"a":' + "[" * 100_000])
def test_an_extremely_nested_list_is_incomplete_or_refused(text: str) -> None:
    try:
        assert not parse_document(text.encode()).is_complete
    except NoListError:
        assert text.startswith("[[")


def entry(pod: str, *devices: tuple[str, ...]) -> Entry:
    ids = tuple(frozenset(names) for names in devices)
    return Entry(("ml", pod, "main"), ids, pod.encode())


LISTED_BY_ANOTHER: dict[str, tuple[list[Any], bool]] = {
    "the same devices": (["GPU-a", "GPU-b"], False),
    "in another order and form": ([1, "GPU-a"], False),
    "as a text, with zeros": (["GPU-b", "00"], False),
    "more devices": (["GPU-a", "GPU-b", "GPU-c"], False),
    "some of them": (["GPU-a"], True),
    "others": (["GPU-c"], True),
    "none": ([], True),
    "nothing that is a device": ([None, True, 0.5, {}, "GPU-b"], True),
}


@pytest.mark.parametrize(("ids", "written"), LISTED_BY_ANOTHER.values(), ids=LISTED_BY_ANOTHER)
def test_a_holder_whose_devices_another_lists_has_no_entry_of_podgpu(
    ids: list[Any], written: bool
) -> None:
    other_entry = {"namespace": "ml", "name": "a", "container": "main", "gpu_list": ids}
    document = parse_document(json.dumps([other_entry]).encode())
    own = entry("a", ("GPU-a", "0"), ("GPU-b", "1")), entry("b", ("GPU-a", "0"))
    assert entries_beside(document, own) == ((b"a", b"b") if written else (b"b",))


def test_devices_of_several_entries_of_others_are_combined() -> None:
    listed = [
        {"namespace": "ml", "name": "a", "container": "main", "gpu_list": [device]}
        for device in ("GPU-a", "GPU-b")
    ]
    document = parse_document(json.dumps(listed).encode())
    assert entries_beside(document, [entry("a", ("GPU-a",), ("GPU-b",))]) == ()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(_VALUES), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=examples(40))
def test_any_list_is_parsed_and_composed_without_a_change(
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
        written = json.loads(compose(found.other_entries, found.own_entries).decode())
        assert written == json.loads(text)


@given(st.binary(), st.integers(0, 200))
def test_any_bytes_result_in_a_readable_list_or_are_refused(junk: bytes, cut: int) -> None:
    for data in (junk, b"[{" + junk, listing(OTHER_ENTRY, OLD_OWN_ENTRY).encode()[:cut] + junk):
        try:
            found = parse_document(data)
        except NoListError:
            continue
        text = compose(found.other_entries, found.own_entries)
        assert parse_document(text).other_entries == found.other_entries
        read_pod_list(text, Path("f"), "minor")
