"""`docs/archive-format.md` states the columns, keys and metadata as the code has them."""

import re

import pytest

from pipeline.archive import object_contents, object_key, object_store, parquet_file
from pipeline.archive.row_columns import COLUMNS, FORMAT, KINDS
from tests.docs.pages import DOCS, blocks, text_of

PAGE = DOCS / "archive-format.md"


def test_the_table_has_all_columns() -> None:
    rows = ["| Column | Type | Rows | Meaning |", "|---|---|---|---|"]
    for column in COLUMNS:
        kinds = "all" if column.kinds == KINDS else ", ".join(f"`{kind}`" for kind in column.kinds)
        rows.append(f"| `{column.name}` | {column.type} | {kinds} | {column.meaning} |")
    table = "\n".join(rows)
    assert table in text_of(PAGE), f"replace the table of columns by:\n{table}"


def test_the_kinds_of_rows_are_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", text_of(PAGE), re.MULTILINE)
    assert tuple(explained[1 : len(KINDS) + 1]) == KINDS


def test_the_keys_of_the_example_are_keys() -> None:
    raw, compacted = blocks(PAGE)[0].split()
    assert isinstance(object_key.parse(raw), object_key.RawKey)
    assert isinstance(object_key.parse(compacted), object_key.CompactedKey)
    assert compacted in blocks(PAGE)[1]


@pytest.mark.parametrize(
    "text",
    [
        f"| `{parquet_file.FORMAT_KEY}` | number of the format: `{FORMAT}` |",
        f"| `{parquet_file.VERSION_KEY}` |",
        f"| `{object_contents.REPLACES_KEY}` |",
        f"| `{object_contents.SERIALS_KEY}` |",
        f"up to {object_key.MAX_ROWS:,} rows",
        f"`{object_key.NODES}/CLUSTER/NODE/DAY/LEDGER-FIRST-LAST-DIGEST.parquet`",
        f"`{object_key.CLUSTERS}/CLUSTER/DAY/COUNT-DIGEST.parquet`",
        f"above {object_store._PART >> 20} MiB",
        *[f"{scheme}://" for scheme in object_store.SCHEMES],
    ],
)
def test_names_and_limits_are_those_of_the_code(text: str) -> None:
    assert text in text_of(PAGE)
