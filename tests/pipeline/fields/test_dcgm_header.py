"""The comparison of a header of DCGM with the table of names, which a new release needs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.fields.dcgm_names import RELEASES, DcgmName, dcgm_names
from tests.support import dcgm_header
from tests.support.dcgm_header import NoHeaderError, compare, lines, main, parse, with_release

HEADER = """\
#define DCGM_FT_INT64 'i'
#define DCGM_FS_DEVICE DCGM_FS_ENTITY
/** SM clock */
#define DCGM_FI_DEV_SM_CLOCK 100
#define DCGM_FI_DEV_FB_USED_BYTES 1627   // bytes
  # define DCGM_FI_DEV_GPU_TEMP_CELSIUS 150 /* since */
#ifndef NO_OLD_NAMES
#define DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_TEMP_CELSIUS
#endif
#define DCGM_FI_DEV_WARP_FACTOR 9001
#define DCGM_FI_DEV_SM_SPEED 100
#define DCGM_FI_DEV_NVSWITCH_HUMIDITY 9002
#define DCGM_FI_DEV_UUID 5454
#define DCGM_FI_FIRST_VGPU_FIELD_ID 520
#define DCGM_FI_DEV_LAST_CONNECTX_FIELD_ID 1399
#define DCGM_FI_PROF_NVLINK_THROUGHPUT_FIRST DCGM_FI_DEV_SM_CLOCK
#define DCGM_FI_MAX_FIELDS 9003
"""
IDS = {
    "DCGM_FI_DEV_SM_CLOCK": 100,
    "DCGM_FI_DEV_FB_USED_BYTES": 1627,
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": 150,
    "DCGM_FI_DEV_GPU_TEMP": 150,
    "DCGM_FI_DEV_WARP_FACTOR": 9001,
    "DCGM_FI_DEV_SM_SPEED": 100,
    "DCGM_FI_DEV_NVSWITCH_HUMIDITY": 9002,
    "DCGM_FI_DEV_UUID": 5454,
}
TABLE = (
    DcgmName("DCGM_FI_DEV_SM_CLOCK", 100, "2"),
    DcgmName("DCGM_FI_DEV_GPU_TEMP", 150, "2"),
    DcgmName("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 150, "4.6"),
    DcgmName("DCGM_FI_DEV_UUID", 54, "2"),
    DcgmName("DCGM_FI_DEV_GPU_UTIL", 203, "2"),
    DcgmName("DCGM_FI_DEV_GRAPHICS_PIDS", 220, "2", "2"),
    DcgmName("DCGM_FI_DEV_FB_USED_BYTES", 1627, "4.7"),
)


def test_a_header_is_parsed_without_the_ends_of_ranges() -> None:
    assert parse(HEADER) == IDS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no line defines a DCGM_FI_ name"),
        ("#define DCGM_FI_MAX_FIELDS 1\n", "no line defines a DCGM_FI_ name"),
        ("#define DCGM_FI_A B\n", "DCGM_FI_A is defined as B"),
        ("#define DCGM_FI_A DCGM_FI_B\n#define DCGM_FI_B DCGM_FI_A\n", "which is no number"),
    ],
)
def test_a_text_that_is_no_header_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NoHeaderError, match=problem):
        parse(text)


def test_new_gone_and_moved_names_are_found_and_those_without_answer() -> None:
    found = compare(IDS, TABLE)
    assert found.new == {
        "DCGM_FI_DEV_WARP_FACTOR": 9001,
        "DCGM_FI_DEV_SM_SPEED": 100,
        "DCGM_FI_DEV_NVSWITCH_HUMIDITY": 9002,
    }
    assert found.gone == ["DCGM_FI_DEV_GPU_UTIL"]
    assert found.moved == {"DCGM_FI_DEV_UUID": (54, 5454)}
    # A new name of a family, as those of NVSwitches, has the family's answer.
    assert found.unanswered == ["DCGM_FI_DEV_WARP_FACTOR", "DCGM_FI_DEV_SM_SPEED"]


def test_a_release_is_added_to_the_table() -> None:
    added = {entry.name: entry for entry in with_release(IDS, TABLE, "9.1")}
    assert added["DCGM_FI_DEV_WARP_FACTOR"] == ("DCGM_FI_DEV_WARP_FACTOR", 9001, "9.1", "")
    assert added["DCGM_FI_DEV_SM_CLOCK"] == TABLE[0]
    assert added["DCGM_FI_DEV_UUID"].id == 5454
    assert added["DCGM_FI_DEV_GPU_UTIL"].until == RELEASES[-1]
    assert added["DCGM_FI_DEV_GRAPHICS_PIDS"].until == "2"
    assert not compare(IDS, tuple(added.values())).new


def test_the_file_of_the_table_is_as_the_command_writes_it() -> None:
    assert dcgm_header.TABLE.read_text(encoding="ascii") == lines(tuple(dcgm_names()))


def header_of(table: Sequence[DcgmName]) -> str:
    return "".join(f"#define {entry.name} {entry.id}\n" for entry in table if not entry.until)


def test_the_command_reports_and_ends_with_status_1_if_an_answer_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = tmp_path / "dcgm_fields.h"
    current = header_of(tuple(dcgm_names()))
    header.write_text(current)
    assert main([str(header)]) == 0
    assert capsys.readouterr().out == "new: 0\ngone: 0\nanother id: 0\n"
    header.write_text(current + "#define DCGM_FI_DEV_SM_SPEED 100\n")
    assert main([str(header)]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "new: 1",
        "  DCGM_FI_DEV_SM_SPEED 100, the id of DCGM_FI_DEV_SM_CLOCK; NEEDS AN ANSWER",
    ]


def test_the_command_adds_a_release_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.tsv"
    monkeypatch.setattr(dcgm_header, "TABLE", table)
    header = tmp_path / "dcgm_fields.h"
    header.write_text(HEADER)
    assert main([str(header), "--add", "9.1"]) == 1
    text = table.read_text()
    assert "DCGM_FI_DEV_WARP_FACTOR\t9001\t9.1\n" in text
    assert "DCGM_FI_DEV_SERIAL\t53\t2\t4.7\n" in text


@pytest.mark.parametrize("content", [None, b"int main(void);", b"\xff"])
def test_the_command_names_a_file_that_is_no_header(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = tmp_path / "dcgm_fields.h"
    if content is not None:
        header.write_bytes(content)
    with pytest.raises(SystemExit) as exited:
        main([str(header)])
    assert exited.value.code == 2
    assert capsys.readouterr().err.startswith(f"{header}: ")
