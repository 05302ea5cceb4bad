"""The counters setting in the configuration file and on the command line."""

import json
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from config.schema import Counters
from pipeline.component.registry import RegisteredKinds
from pipeline.fields import CATALOGUE, LABELS, all_words, chosen
from podgpu.cli import main
from podgpu.cli.field_table import markdown
from tests.pipeline.counters.test_list_follower import BAD, ONE

BASE = "sources: {gpus: {kind: nvml}}\nsinks: {lines: {kind: jsonl}}\n"


def counters(text: str) -> Counters:
    return parse(f"{BASE}counters: {text}\n", RegisteredKinds(), env={}, origin="f").counters


ALSO = "19: counters.also[0]: unknown field or group"
NO_UUID = "is not available: it is a text; every series has it as label UUID"


@pytest.mark.parametrize(
    "word",
    [
        *("profiling", "statistics", "links", "health", "limits", "all"),
        *("sm_active_ratio", "DCGM_FI_PROF_SM_ACTIVE", "dcgm_fi_prof_sm_active"),
        *("podgpu_nvlink_up", "DCGM_FI_DEV_SERIAL"),
    ],
)
def test_a_field_can_be_added_by_any_name_and_by_its_group(word: str) -> None:
    assert counters(f"{{also: [{word}]}}").also == (word,)
    assert chosen(word)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{also: [links, limit]}",
            '26: counters.also[1]: unknown field or group "limit"; did you mean "limits"?',
        ),
        (
            "{also: [gpu_upp]}",
            '19: counters.also[0]: unknown field or group "gpu_upp"; did you mean "gpu_up"?',
        ),
        ('{also: [""]}', '19: counters.also[0]: unknown field or group ""'),
        (
            "{also: [DCGM_FI_DEV_UUID]}",
            f'{ALSO} "DCGM_FI_DEV_UUID"; it {NO_UUID}',
        ),
        (
            "{also: [DCGM_FI_DEV_UUUID]}",
            f'{ALSO} "DCGM_FI_DEV_UUUID"; "DCGM_FI_DEV_UUID" {NO_UUID}',
        ),
        # Another number is another engine.
        (
            "{also: [DCGM_FI_PROF_NVDEC8_ACTIVE]}",
            f'{ALSO} "DCGM_FI_PROF_NVDEC8_ACTIVE"',
        ),
        (
            "{file: /x, configmap: 'a:b'}",
            "33: counters.configmap: file is set too: remove one of the two",
        ),
        (
            "{configmap: 'a:b', rows: ['A, gauge, a']}",
            "36: counters.rows: configmap is set too: remove one of the two",
        ),
    ],
)
def test_an_invalid_setting_is_an_error_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        counters(text)
    assert str(caught.value) == f"f:3:{problem}"


def test_every_accepted_name_selects_a_field() -> None:
    assert len(all_words()) == len(set(all_words()))
    for word in all_words():
        assert chosen(word), word


def check(tmp_path: Path, setting: str) -> int:
    config = tmp_path / "podgpu.yaml"
    config.write_text(f"{BASE}counters: {setting}\n")
    return main(["check", "-c", str(config)])


class TestCheck:
    def test_a_valid_list_is_accepted(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "c.csv").write_text(ONE)
        assert check(tmp_path, f"{{file: {tmp_path / 'c.csv'}}}") == 0
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (f"{ONE}DCGM_FI_DEV_FB_USE, gauge, x", "did you mean DCGM_FI_DEV_FB_USED?"),
            (BAD, "no row of the list can be used; podgpu reads its default fields"),
        ],
    )
    def test_invalid_rows_are_reported_but_are_no_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
    ) -> None:
        (tmp_path / "c.csv").write_text(text)
        assert check(tmp_path, f"{{file: {tmp_path / 'c.csv'}}}") == 0
        out, err = capsys.readouterr()
        assert "valid: sources gpus" in out
        assert expected in err

    def test_so_are_rows_in_the_configuration(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = '["DCGM_FI_DEV_GPU_TEMP, gauge, a", "DCGM_FI_DEV_FB_USE, gauge, x"]'
        assert check(tmp_path, f"{{rows: {rows}}}") == 0
        assert "counters.rows: a row is ignored:\n  line 2: DCGM_" in capsys.readouterr().err

    def test_a_missing_list_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert check(tmp_path, f"{{file: {tmp_path / 'none.csv'}}}") == 2
        assert "counters.file: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "found", "answer"),
    [
        (["DCGM_FI_DEV_FB_USED"], ["memory_used_bytes"], ""),
        (["dcgm_fb_used", "podgpu_memory_used_bytes"], ["memory_used_bytes"], ""),
        (
            ["DCGM_FI_PROF_PCIE_TX_BYTES"],
            ["pcie_transmitted_bytes", "pcie_transmit_bytes_per_second"],
            "",
        ),
        (
            ["DCGM_FI_DEV_UUID", "serial"],
            ["serial"],
            "DCGM_FI_DEV_UUID is not available: it is a text; every series has it as label UUID\n",
        ),
        (["x\n\x1b[2J"], [], "x  [2J is no known field; podgpu fields lists all fields\n"),
    ],
)
def test_the_command_fields_answers_for_names(
    names: list[str], found: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fields", "--format", "json", *names]) == (1 if answer else 0)
    printed = capsys.readouterr()
    assert [row["name"] for row in json.loads(printed.out)] == found
    assert printed.err == answer
    for form in ("table", "markdown"):
        main(["fields", "--format", form, *names])
        out = capsys.readouterr().out
        assert all(name in out for name in found)
        assert "power_watts" not in out


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_the_command_fields_prints_all_names_of_each_field(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fields", "--format", form]) == 0
    out = capsys.readouterr().out
    for field in (*CATALOGUE, *LABELS):
        words = (field.name, field.group, field.dcgm, field.dcgm_1x, field.otel)
        for word in (*words, *field.aliases, field.dcgm_base, *field.attrs):
            assert word in out
    for column in next(iter(markdown())).strip("| ").split(" | "):
        assert column in out


def test_the_command_fields_prints_one_json_object_for_each_field(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fields", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    used, sent, driver = (
        rows[name] for name in ("memory_used_bytes", "pcie_transmitted_bytes", "driver_version")
    )
    assert used["metric unit"] == "MiB (bytes / 1048576)"
    assert used["1.x metric"] == "dcgm_fb_used"
    assert sent["further names"] == "DCGM_FI_PROF_PCIE_TX_BYTES, DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL"
    assert (driver["type"], driver["metric"]) == ("label", "DCGM_FI_DRIVER_VERSION")
