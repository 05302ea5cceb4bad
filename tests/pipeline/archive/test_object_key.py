"""Keys of objects: made, read, and refused if they are not exactly as podgpu makes them."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.archive.object_key import CompactedKey, RawKey, digest, encoded, parse

LEDGER = "0123456789abcdef"
DAY = date(2026, 11, 30)
NAMES = st.text(min_size=1, max_size=40)
DAYS = st.dates(min_value=date(1970, 1, 1))
HEX = st.text("0123456789abcdef", min_size=16, max_size=16)
RAW = "v1/nodes/prod/node-1/2026-11-30/0123456789abcdef-000000000001-000000000030-fedcba9876543210"


def test_the_key_of_a_raw_object() -> None:
    key = RawKey("prod", "node-1", DAY, LEDGER, 1, 30, "fedcba9876543210")
    assert str(key) == f"{RAW}.parquet"
    assert parse(str(key)) == key


def test_the_key_of_a_compacted_object_depends_only_on_the_set_of_raw_keys() -> None:
    key = CompactedKey.of("prod", DAY, ["b", "a"])
    assert key == CompactedKey.of("prod", DAY, {"a", "b"})
    assert str(key) == f"v1/clusters/prod/2026-11-30/000000002-{digest([b'a', b'b'])}.parquet"
    assert parse(str(key)) == key


def test_a_larger_set_has_a_later_key() -> None:
    keys = [f"raw-{number}" for number in range(1200)]
    found = [str(CompactedKey.of("prod", DAY, keys[:count])) for count in range(1, 1200)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("node-1.example", "node-1.example"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".hidden", "%2Ehidden"),
        ("ends.", "ends%2E"),
        ("50%", "50%25"),
        ("~", "%7E"),
        ("köln", "k%C3%B6ln"),
        ("a b", "a%20b"),
    ],
)
def test_names_are_percent_encoded(name: str, part: str) -> None:
    assert encoded(name) == part


@pytest.mark.parametrize("name", ["", "a" * 254, "\ud800"])
def test_names_that_no_key_can_have(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        encoded(name)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "v1/nodes",
        f"{RAW}",
        f"/{RAW}.parquet",
        f"{RAW}.parquet\n",
        f"{RAW}.parquet.tmp",
        f"{RAW}.parquet".replace("v1", "v2"),
        f"{RAW}.parquet".replace("node-1", "node/1"),
        f"{RAW}.parquet".replace("node-1", "node%2d1"),
        f"{RAW}.parquet".replace("node-1", "%FF"),
        f"{RAW}.parquet".replace("node-1", "a" * 254),
        f"{RAW}.parquet".replace("node-1", ".."),
        f"{RAW}.parquet".replace("11-30", "11-31"),
        f"{RAW}.parquet".replace("abcdef", "ABCDEF"),
        f"{RAW}.parquet".replace("000000000001", "000000000000"),
        f"{RAW}.parquet".replace("000000000001", "000000000031"),
        f"{RAW}.parquet".replace("000000000001", "00000000000\u0661"),
        "v1/clusters/prod/2026-11-30/2-fedcba9876543210.parquet",
        "v1/clusters/prod/2026-11-30/fedcba9876543210.parquet",
    ],
)
def test_other_keys_are_not_podgpus(key: str) -> None:
    assert parse(key) is None


@pytest.mark.slow
@given(
    st.builds(RawKey, NAMES, NAMES, DAYS, HEX, st.integers(1, 99), st.integers(99, 10**12 - 1), HEX)
)
def test_each_raw_key_is_read_as_it_was_made(key: RawKey) -> None:
    assert parse(str(key)) == key
    assert len(str(key).split("/")) == 6
    assert str(key).isascii()


@pytest.mark.slow
@given(NAMES, DAYS, st.sets(st.text(max_size=5), min_size=1))
def test_each_compacted_key_is_read_as_it_was_made(
    cluster: str, day: date, replaces: set[str]
) -> None:
    key = CompactedKey.of(cluster, day, replaces)
    assert parse(str(key)) == key


@pytest.mark.slow
@given(st.lists(st.sampled_from([RAW, "/", "%", "..", "v1", "-", "0", ".parquet"]), max_size=6))
def test_whatever_is_read_is_made_again(parts: list[str]) -> None:
    key = "".join(parts)
    found = parse(key)
    assert found is None or str(found) == key
