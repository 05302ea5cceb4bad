"""Any content of the file results in claims or in an error message."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.claim_file_reader import FileClaims
from sources.podlist.pod_list_file import BadDocumentError, read_pod_list
from tests.support.examples import examples

PATH = Path("podlist.json")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["GPU-a", "MIG-b", "3", "GPU-", "\ufeff", "\x00", "\ud800", "\udcffa"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
keys = st.sampled_from(["name", "namespace", "container", "gpu_list", "other", 'gpu_"list'])
entries = values | st.dictionaries(keys, values | st.just("x"))
valid_entry = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b"]),
        "namespace": st.just("ns"),
        "container": st.just("c"),
        "gpu_list": st.lists(st.sampled_from(["GPU-a", "MIG-b", 0, "1"]), max_size=4),
    }
)
texts = st.builds(
    lambda listed, indent, ascii_only: json.dumps(
        listed, indent=indent, ensure_ascii=ascii_only
    ).encode("utf-8", "surrogatepass"),
    st.lists(valid_entry | entries, max_size=6),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2)
            | st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b":"])
        )
    return bytes(text)


def read(data: bytes) -> FileClaims | None:
    try:
        listed = read_pod_list(data, PATH, "minor")
    except BadDocumentError as error:
        message = str(error)
    else:
        return checked(listed)
    assert message.startswith("podlist.json:")
    return None


def checked(listed: FileClaims) -> FileClaims:
    for claim in listed.claims:
        assert claim.subject.namespace
        assert claim.subject.pod
        assert claim.subject.container
        assert claim.devices
        assert all(device.text for device in claim.devices)
        assert len(set(claim.devices)) == len(claim.devices)
    assert len({claim.subject for claim in listed.claims}) == len(listed.claims)
    assert len(listed.problems) <= 4
    return listed


@given(st.binary())
def test_any_bytes_result_in_claims_or_an_error(data: bytes) -> None:
    read(data)


@given(mutated())
@settings(max_examples=examples(40))
def test_damaged_lists_result_in_claims_or_an_error(data: bytes) -> None:
    read(data)


@pytest.mark.slow
@given(texts)
@settings(max_examples=examples(40))
def test_each_problem_of_any_list_shows_its_place(data: bytes) -> None:
    listed: list[Any] = json.loads(data)
    found = read(data)
    assert found is not None
    for message in found.problems:
        place, _, rest = message.removeprefix("podlist.json:").partition(": ")
        if "more problems of this kind" in rest or "more problems of this kind" in place:
            continue
        line, column = (int(part) for part in place.split(":"))
        after = data.decode("utf-8", "replace").split("\n", line - 1)[-1][column - 1 :]
        shown = rest.rpartition("found ")[2]
        first = {"a list": "[", "an object": "{", "nothing": "{"}.get(shown, shown[0])
        assert after.startswith(first) or shown[0].isdigit(), (message, listed)


@given(st.lists(valid_entry, max_size=4), values, st.integers(0, 4), st.booleans())
@settings(max_examples=examples(40))
def test_an_invalid_entry_does_not_affect_other_entries(
    listed: list[dict[str, Any]], anything: object, at: int, escaped: bool
) -> None:
    def claimed(entries: list[Any]) -> list[tuple[object, object]]:
        text = json.dumps(entries, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
        found = read(text)
        assert found is not None
        return [(claim.subject, claim.devices) for claim in found.claims]

    assert claimed([*listed[:at], {"bad": anything}, *listed[at:]]) == claimed(listed)


@given(st.lists(valid_entry, max_size=6))
@settings(max_examples=examples(40))
def test_valid_lists_have_no_problems(listed: list[dict[str, Any]]) -> None:
    found = read(json.dumps(listed).encode())
    assert found is not None
    assert found.problems == ()
    holding = {entry["name"] for entry in listed if entry["gpu_list"]}
    assert {claim.subject.pod for claim in found.claims} == holding
