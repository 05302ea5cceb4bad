"""The help, the documentation and the image's entry point have the options of the table."""

import re
from collections import Counter
from pathlib import Path

import pytest

from podgpu.cli import main
from podgpu.cli.dcgm_exporter.command import table_row
from podgpu.cli.dcgm_exporter.option_table import OPTIONS, OWN, TYPES, Support

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")


def test_names_and_variables_are_unique() -> None:
    names = Counter(flag for option in OPTIONS for flag in option.flags)
    names.update(option.variable for option in OPTIONS if option.variable)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_type_of_an_option_has_a_name() -> None:
    assert {option.value_type for option in OPTIONS} == set(TYPES)


def test_options_without_effect_have_a_reason_and_no_key() -> None:
    for option in OPTIONS:
        assert option.why.endswith((".", "?")), option.name
        if option.support in {Support.NOT_NEEDED, Support.NOT_SUPPORTED, Support.RENAMED}:
            assert option.config_key == "", option.name


def test_the_table_of_the_page_has_all_options() -> None:
    """The page has one line for each option and no other.

    To update the page, print `table_row` of each option.
    """
    lines = [line for line in PAGE.splitlines() if line.startswith("| `-")]
    assert lines == [table_row(option) for option in OPTIONS]


def test_the_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dcgm-exporter", "--help"]) == 0
    output = capsys.readouterr().out
    for option in OPTIONS:
        for word in (*option.flags, option.variable, option.why, option.config_key):
            assert word in output


def test_the_help_of_podgpu_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "dcgm-exporter" in capsys.readouterr().out


def test_the_entry_point_checks_exactly_the_variables_of_dcgm_exporter() -> None:
    script = (ROOT / "image" / "entrypoint").read_text(encoding="utf-8")
    listed = re.findall(r"^[A-Z]+_[A-Z_]+$", script, re.MULTILINE)
    expected = [option.variable for option in OPTIONS if option not in OWN and option.variable]
    assert listed == sorted(expected)
