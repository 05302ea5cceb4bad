"""What a compacted object states about its contents, and metadata that is damaged."""

import base64
import json
import zlib
from datetime import date

import pytest

from pipeline.archive.object_contents import (
    REPLACES_KEY,
    SERIALS_KEY,
    contents_of_raw,
    decode_contents,
    encode_contents,
    joined_contents,
)
from pipeline.archive.object_key import CompactedKey, RawKey
from pipeline.base.errors import PermanentError

DAY = date(2026, 11, 30)
LEDGER = "0123456789abcdef"


def raw(first: int, last: int, node: str = "node-1") -> str:
    return str(RawKey("prod", node, DAY, LEDGER, first, last, LEDGER))


KEYS = [raw(1, 10), raw(11, 20), raw(30, 40), raw(35, 38), raw(1, 5, "node/2")]
CONTENTS = contents_of_raw(KEYS)
KEY = CompactedKey.of("prod", DAY, KEYS)


def test_serials_are_ranges_that_do_not_touch() -> None:
    assert CONTENTS.serials == {
        ("prod", "node-1", LEDGER): ((1, 20), (30, 40)),
        ("prod", "node/2", LEDGER): ((1, 5),),
    }
    assert CONTENTS.rows == 36


def test_joined_contents_are_those_of_all_raw_objects() -> None:
    assert joined_contents(contents_of_raw([key]) for key in KEYS) == CONTENTS


def test_contents_are_read_as_they_were_written() -> None:
    assert decode_contents(KEY, encode_contents(CONTENTS)) == CONTENTS


@pytest.mark.slow
def test_the_metadata_of_a_day_of_a_thousand_nodes_is_small() -> None:
    keys = [
        str(
            RawKey(
                "prod",
                f"node-{node}",
                DAY,
                f"{node:016x}",
                30 * h + 1,
                30 * h + 30,
                f"{hash((node, h)) % 2**64:016x}",
            )
        )
        for node in range(1000)
        for h in range(24)
    ]
    assert sum(map(len, encode_contents(contents_of_raw(keys)).values())) < 1 << 20


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


@pytest.mark.parametrize(
    "changed",
    [
        {REPLACES_KEY: "?"},
        {REPLACES_KEY: base64.b64encode(b"no zlib").decode()},
        {REPLACES_KEY: packed([1, 2])},
        {REPLACES_KEY: packed(KEYS[1:])},
        {REPLACES_KEY: encode_contents(CONTENTS)[REPLACES_KEY][:-8]},
        {SERIALS_KEY: packed([])},
        {SERIALS_KEY: packed({"node-1": {LEDGER: [[1]]}})},
        {SERIALS_KEY: packed({"node-1": 3})},
    ],
)
def test_damaged_metadata_is_refused_by_name(changed: dict[str, str]) -> None:
    with pytest.raises(PermanentError, match=f"{KEY} is damaged"):
        decode_contents(KEY, encode_contents(CONTENTS) | changed)


@pytest.mark.parametrize("missing", [REPLACES_KEY, SERIALS_KEY])
def test_missing_metadata_is_refused_by_name(missing: str) -> None:
    metadata = {key: value for key, value in encode_contents(CONTENTS).items() if key != missing}
    with pytest.raises(PermanentError, match=f"{KEY} is damaged"):
        decode_contents(KEY, metadata)
