"""Which objects of a cluster and day are effective, and what a list of an archive contains."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.object_key import CompactedKey, RawKey
from pipeline.archive.object_listing import effective, list_objects
from tests.pipeline.archive.model_store import Model

DAY = date(2026, 11, 30)
SETS = st.dictionaries(
    st.text("xyz", min_size=1, max_size=3), st.frozensets(st.sampled_from("abcdef"), min_size=1)
)


@pytest.mark.parametrize(
    ("raw", "sets", "expected"),
    [
        ("", {}, ([], [])),
        ("ab", {}, (["a", "b"], [])),
        ("", {"X": "ab"}, ([], ["X"])),
        ("ab", {"X": "ab"}, ([], ["X"])),
        ("abc", {"X": "ab"}, (["c"], ["X"])),
        ("", {"X": "ab", "Y": "abc"}, ([], ["Y"])),
        ("ad", {"X": "ab", "Y": "abc"}, (["d"], ["Y"])),
        ("", {"X": "ab", "Y": "bc"}, ([], ["X", "Y"])),
        ("", {"X": "ab", "Y": "bc", "Z": "abc"}, ([], ["Z"])),
    ],
)
def test_effective_objects(
    raw: str, sets: dict[str, str], expected: tuple[list[str], list[str]]
) -> None:
    assert effective(list(raw), {key: frozenset(each) for key, each in sets.items()}) == expected


@pytest.mark.slow
@given(st.sets(st.sampled_from("abcdefgh")), SETS)
def test_effective_objects_have_all_rows_and_none_contains_another(
    raw: set[str], sets: dict[str, frozenset[str]]
) -> None:
    # Equal sets have equal keys.
    sets = {"".join(sorted(each)): each for each in sets.values()}
    alone, largest = effective(sorted(raw), sets)
    assert {*alone}.union(*(sets[key] for key in largest)) == raw.union(*sets.values())
    assert not any(sets[a] <= sets[b] for a in largest for b in largest if a != b)
    assert not any(key in sets[each] for key in alone for each in largest)


def test_a_list_groups_keys_and_leaves_out_what_is_not_wanted() -> None:
    other_day = date(2026, 11, 29)
    ledger = "0123456789abcdef"
    raw = [
        str(RawKey(cluster, "n", day, ledger, 1, 2, ledger))
        for cluster, day in (("prod", DAY), ("prod", other_day), ("prod-2", DAY))
    ]
    compacted = str(CompactedKey.of("prod", DAY, raw[:1]))
    foreign = "v1/nodes/prod/notes.txt"
    store = Model(dict.fromkeys((*raw, compacted, foreign, "v2/nodes/prod", "readme"), b""))
    found = list_objects(store, ["prod"], lambda day: day == DAY)
    assert found.foreign == (foreign,)
    assert set(found.groups) == {("prod", DAY)}
    assert found.groups["prod", DAY].raw == raw[:1]
    assert found.groups["prod", DAY].compacted == [compacted]
    assert set(list_objects(store).groups) == {("prod", DAY), ("prod", other_day), ("prod-2", DAY)}
