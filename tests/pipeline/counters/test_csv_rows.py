"""Parse lines of a counters list: more tolerant than dcgm-exporter."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.counters.csv_rows import CsvRow, read

UTIL = "DCGM_FI_DEV_GPU_UTIL"


def row(line: int, name: str = UTIL, type_: str = "gauge", about: str = "Load.") -> CsvRow:
    return CsvRow(line, name, type_, about)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{UTIL}, gauge, Load.", row(1), id="plain"),
        pytest.param(f"{UTIL},gauge,Load.", row(1), id="no blanks"),
        pytest.param(f"{UTIL} ,     gauge, Load.", row(1), id="blanks before the comma"),
        pytest.param(f"\t {UTIL},\tgauge ,\tLoad. \t", row(1), id="tabs"),
        pytest.param(f"{UTIL}, Gauge, Load.", row(1), id="capitals in the type"),
        pytest.param(f"{UTIL}, gauge", row(1, about=""), id="no help"),
        pytest.param(f"{UTIL}, gauge,", row(1, about=""), id="empty help"),
        pytest.param(f"{UTIL}, gauge, Load,  in %.", row(1, about="Load,  in %."), id="comma"),
        pytest.param(f'"{UTIL}","gauge","Load."', row(1), id="all quoted"),
        pytest.param(f'{UTIL}, gauge, "Load, in %."', row(1, about="Load, in %."), id="quoted"),
        pytest.param(f'{UTIL}, gauge, "a ""b"" c"', row(1, about='a "b" c'), id="doubled quotes"),
        pytest.param(f'{UTIL}, gauge, the "SM" load', row(1, about='the "SM" load'), id="inner"),
        pytest.param(f'{UTIL}, gauge, "SM" load', row(1, about='"SM" load'), id="quoted word"),
        pytest.param(f"{UTIL}, gauge, Load.,,,", row(1), id="empty cells of a spreadsheet program"),
        pytest.param(f"{UTIL}, gauge, # 1 of 2", row(1, about="# 1 of 2"), id="# in the help"),
        pytest.param(f"\ufeff{UTIL}, gauge, Load.", row(1), id="byte order mark"),
        pytest.param(f"# c\r\n\r\n{UTIL}, gauge, Load.\r\n", row(3), id="CRLF"),
        pytest.param(f"# c\r{UTIL}, gauge, Load.\r", row(2), id="CR"),
        pytest.param(f"# c\n  # indented\n,,,\n \n{UTIL}, gauge, Load.", row(5), id="comments"),
        pytest.param(f'"# c, d",,\n{UTIL}, gauge, Load.', row(2), id="quoted comment"),
        pytest.param(
            f"{UTIL}, gauge, Last \u00e9t\u00e9", row(1, about="Last \u00e9t\u00e9"), id="letters"
        ),
    ],
)
def test_a_valid_line_is_parsed(text: str, expected: CsvRow) -> None:
    assert list(read(text)) == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (UTIL, f'"{UTIL}" has no type; write FIELD, type, help'),
        (f"{UTIL},", f'"{UTIL}" has no type; write FIELD, type, help'),
        (f"{UTIL};gauge;Load", f'"{UTIL};gauge;Load" has no type; write FIELD, type, help'),
        (f"{UTIL},,Load", f'"{UTIL},,Load" has no type; write FIELD, type, help'),
        (", gauge, Load", '", gauge, Load" has no name; write FIELD, type, help'),
        (f'{UTIL}, gauge, "Load', f'"{UTIL}": the quoted help text does not end on the line'),
        (f'{UTIL}", gauge, Load', f'"{UTIL}", gauge, Load" has a quotation mark out of place'),
        (f'{UTIL}, "gauge, Load', f'"{UTIL}, "gauge, Load" has a quotation mark out of place'),
    ],
)
def test_a_malformed_line_is_reported_and_other_lines_are_kept(line: str, expected: str) -> None:
    found = list(read(f"# c\n{line}\n{UTIL}, gauge, Load."))
    assert found == [f"line 2: {expected}", row(3)]


LINE = st.one_of(
    st.text(max_size=40),
    st.sampled_from([UTIL, "gauge", '"', ",", "#", " ", f"{UTIL}, gauge, x"]),
    st.text(alphabet='",# \t\x00aé', max_size=20),
)


@given(lines=st.lists(LINE, max_size=8), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_line_is_a_row_or_reported_or_empty(lines: list[str], end: str) -> None:
    text = end.join(lines)
    results = list(read(text))
    rows = [found for found in results if isinstance(found, CsvRow)]
    numbers = [
        found.line if isinstance(found, CsvRow) else int(found.removeprefix("line ").split(":")[0])
        for found in results
    ]
    assert numbers == sorted(set(numbers))
    left = set(range(1, len(re.split("\r\n|\n|\r", text)) + 1)) - set(numbers)
    for number in left:
        line = re.split("\r\n|\n|\r", text.removeprefix("\ufeff"))[number - 1]
        assert re.fullmatch(r'[\s,]*("?#.*)?', line, re.DOTALL), line
    for found in rows:
        assert found.name
        assert found.type
        assert found.name == found.name.strip()


def test_a_line_of_a_megabyte_is_parsed_quickly() -> None:
    for line in ("a" + " " * 1_000_000 + '"', "a, " + " " * 1_000_000 + 'b"', '"' * 1_000_001):
        [found] = read(line)
        assert isinstance(found, str)
