"""Every name of DCGM has an answer: the field that gives it, or why not and what to use."""

import re
from collections import defaultdict

import pytest

from pipeline.fields import CATALOGUE, LABELS, called, chosen
from pipeline.fields.dcgm_names import RELEASES, DcgmName, dcgm_names
from pipeline.fields.unavailable_names import OF_DCGM_EXPORTER, PATTERNS, unavailable_reason

NAMES = tuple(dcgm_names())
NEWEST = [entry for entry in NAMES if not entry.until]
GIVEN = {entry.name for entry in NAMES if list(called(entry.name))}


def aliases() -> list[list[str]]:
    """Return the names of each id that has several in the newest release."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for entry in NEWEST:
        found[entry.id].append(entry.name)
    return [names for names in found.values() if len(names) > 1]


def test_the_table_has_the_names_of_the_compared_headers() -> None:
    assert len(NAMES) == len({entry.name for entry in NAMES}) == 1203
    assert len(NEWEST) == 1054
    assert len({entry.id for entry in NEWEST}) == 692
    assert all(re.fullmatch("DCGM_FI_[A-Z0-9_]+", entry.name) for entry in NAMES)


def test_the_releases_of_each_name_are_compared_ones_and_in_order() -> None:
    for entry in NAMES:
        assert RELEASES.index(entry.since) <= RELEASES.index(entry.until or RELEASES[-1]), entry


def test_the_table_is_in_the_order_of_the_ids() -> None:
    assert [entry.id for entry in NAMES] == sorted(entry.id for entry in NAMES)


def test_every_name_is_given_or_has_a_reason() -> None:
    without = [e.name for e in NAMES if e.name not in GIVEN and unavailable_reason(e.name) is None]
    assert without == []


def test_no_name_that_is_given_has_a_reason_not_to_be() -> None:
    assert [name for name in GIVEN if unavailable_reason(name) is not None] == []


def test_every_dcgm_name_of_a_field_is_in_the_table() -> None:
    known = {entry.name for entry in NAMES}
    of_fields = {name for field in (*CATALOGUE, *LABELS) for name in field.dcgm_names}
    assert {name for name in of_fields if name.startswith("DCGM_FI_")} <= known


@pytest.mark.parametrize("names", aliases(), ids=lambda names: names[-1])
def test_names_with_one_id_have_one_answer(names: list[str]) -> None:
    first, *others = names
    for name in others:
        assert list(called(name)) == list(called(first))
        assert chosen(name) == chosen(first)
        assert unavailable_reason(name) == unavailable_reason(first)


@pytest.mark.parametrize("names", aliases(), ids=lambda names: names[-1])
def test_the_usual_name_of_a_field_is_the_oldest_of_its_id(names: list[str]) -> None:
    """Lists and dashboards have the old names; DCGM keeps them."""
    since = {entry.name: RELEASES.index(entry.since) for entry in NEWEST}
    for field in called(names[0]):
        if field.dcgm.startswith("DCGM_FI_"):
            assert field.dcgm == min(names, key=since.__getitem__)


def test_an_id_has_at_most_two_names_at_a_time() -> None:
    """A release that gives a third one needs a look: it may have taken the id for another value."""
    assert [names for names in aliases() if len(names) > 2] == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_reason_is_that_of_a_name(pattern: str) -> None:
    names = [*(entry.name for entry in NAMES), *OF_DCGM_EXPORTER]
    assert any(re.fullmatch(pattern, name.removeprefix("DCGM_FI_")) for name in names)


def ungiven() -> list[DcgmName | str]:
    return [*(e.name for e in NAMES if e.name not in GIVEN), *OF_DCGM_EXPORTER]


WORD = re.compile(r"(?:DCGM_|dcgm_|podgpu_)\w+")


def test_each_alternative_is_given() -> None:
    """A name in a text, as what to use instead, is a name that podgpu gives."""
    own = {"podgpu_device_info"}
    for name in ungiven():
        reason = unavailable_reason(str(name))
        assert reason is not None
        for word in WORD.findall(reason.instead):
            assert word in own or list(called(word)), (name, word)


def test_a_text_has_the_reason_and_the_alternative_if_there_is_one() -> None:
    with_one = unavailable_reason("DCGM_FI_DEV_GPU_UUID")
    without = unavailable_reason("DCGM_FI_DEV_NVSWITCH_UUID")
    assert with_one is not None
    assert without is not None
    assert with_one.text == "is not available: it is a text; every series has it as label UUID"
    assert without.text == (
        "is not available: it belongs to an NVSwitch, and podgpu reads only GPUs"
    )


@pytest.mark.parametrize("name", ["", "DCGM_FI_DEV_FOO", "dcgm_fi_dev_uuid", "DEV_UUIDS"])
def test_an_unknown_name_has_no_reason(name: str) -> None:
    assert unavailable_reason(name) is None
