"""Numbers that podgpu cannot use, and the counters list that is used by default."""

import logging
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigError
from config.option_markers import AtLeast, AtMost
from config.shipped_lists import SHIPPED_LISTS
from config.value_types import Duration
from podgpu.cli.dcgm_exporter import option_table
from podgpu.cli.dcgm_exporter.command import EffectiveConfig
from podgpu.cli.dcgm_exporter.go_arguments import Setting, Settings
from podgpu.cli.dcgm_exporter.option_table import BY_NAME
from podgpu.cli.dcgm_exporter.value_limits import LIMITS, within_limits
from sources.nvml.options import Options
from tests.podgpu.cli.dcgm_configs import config_of, value_at


def warnings(found: EffectiveConfig) -> list[str]:
    return [text for level, text in found.remarks if level == logging.WARNING]


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_are_those_of_the_option_that_is_set(name: str) -> None:
    key = BY_NAME[name].config_key.rpartition(".")[2]
    hint = get_type_hints(Options, include_extras=True)[key]
    assert get_origin(hint) is Annotated
    bounds = {
        kind: round(Duration.parse(str(each.bound)) * 1000)
        for each in get_args(hint)
        for kind in (AtLeast, AtMost)
        if isinstance(each, kind)
    }
    assert LIMITS[name] == (bounds[AtLeast], bounds.get(AtMost))


@pytest.mark.parametrize(
    ("words", "env", "place", "used", "warning"),
    [
        (
            "-c 1",
            {},
            "interval",
            "100ms",
            "-c: 1 ms is beyond podgpu's minimum; podgpu uses 100 ms",
        ),
        ("-c 30", {}, "interval", "100ms", "for 30 seconds write 30000"),
        ("-c 99", {}, "slow_interval", "100ms", "podgpu uses 100 ms"),
        ("", {"DCGM_EXPORTER_INTERVAL": "5"}, "interval", "100ms", "DCGM_EXPORTER_INTERVAL: 5 ms"),
        ("-x 10", {}, "xid_window", "1s", "-x: 10 ms is beyond podgpu's minimum; podgpu uses 1000"),
        ("-x 0", {}, "xid_window", "1s", "-x: 0 ms"),
        ("-x=-5", {}, "xid_window", "1s", "-x: -5 ms"),
        ("-x 86400001", {}, "xid_window", "1d", "-x: 86400001 ms is beyond podgpu's maximum"),
        (
            "--clock-events-count-window-size 999",
            {},
            "clock_events_window",
            "1s",
            "--clock-events-count-window-size: 999 ms",
        ),
    ],
)
def test_a_number_beyond_a_limit_is_replaced_with_a_warning(
    words: str, env: dict[str, str], place: str, used: str, warning: str
) -> None:
    found = config_of(*words.split(), **env)
    assert value_at(found.text, f"sources.gpus.{place}") == used
    (said,) = warnings(found)
    assert warning in said


def test_the_interval_of_a_host_engine_is_replaced_too() -> None:
    assert value_at(config_of("-c", "5", "-r", "h:1").text, "sources.engine.interval") == "100ms"


def test_an_interval_in_the_file_is_replaced_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\ncollection: {interval: 5ms}")
    found = config_of("--config-file", str(path))
    assert value_at(found.text, "sources.gpus.interval") == "100ms"
    assert warnings(found)[0].startswith(
        f"{path}: collection.interval: 5 ms is beyond podgpu's min"
    )


@pytest.mark.parametrize("number", ["0", "-1", "-30000"])
def test_an_interval_that_dcgm_refuses_is_an_error(number: str) -> None:
    """DCGM refuses an update frequency of 0 or less, so that dcgm-exporter does not start."""
    with pytest.raises(ConfigError) as caught:
        config_of("-c", number)
    assert f"-c: {number} is not an interval: the unit is milliseconds" in str(caught.value)


@given(st.integers(1, 10**12), st.integers(-(10**12), 10**12))
def test_every_number_that_dcgm_exporter_accepts_is_moved_at_most_to_a_limit(
    interval: int, window: int
) -> None:
    given_ = {"collect-interval": interval, "xid-count-window-size": window}
    settings, said = within_limits(Settings({k: Setting(v, k) for k, v in given_.items()}))
    for name, number in given_.items():
        least, most = LIMITS[name]
        used = settings.number(name)
        assert least <= used <= (most or used)
        assert used == number or used in (least, most)
        assert any(text.startswith(f"{name}: ") for text in said) is (used != number)


# The counters list.

DEFAULT = BY_NAME["collectors"].default


@pytest.fixture
def default_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default path of the counters list, moved into a folder of the test."""
    path = tmp_path / "etc" / "default-counters.csv"
    collectors = BY_NAME["collectors"]
    monkeypatch.setitem(
        option_table.BY_NAME,
        "collectors",
        type(collectors)("collectors", str(path), collectors.why, collectors.config_key, "f"),
    )
    return path


def list_of(found: EffectiveConfig) -> str:
    return str(value_at(found.text, "counters.file"))


def test_without_the_file_of_the_image_podgpu_uses_its_own_copy(default_list: Path) -> None:
    shipped = SHIPPED_LISTS / "default-counters.csv"
    found = config_of()
    assert list_of(found) == str(shipped)
    note = f"{default_list} does not exist, so the counters list is podgpu's own copy: {shipped}"
    assert (logging.INFO, note) in found.remarks
    assert found.config.counters.file is not None
    assert "DCGM_FI_DEV_GPU_UTIL" in found.config.counters.file.read_text(encoding="utf-8")


def test_the_file_of_the_image_takes_precedence(default_list: Path) -> None:
    default_list.parent.mkdir()
    default_list.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, T.\n")
    found = config_of()
    assert list_of(found) == str(default_list)
    assert not any("own copy" in text for _, text in found.remarks)


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_path_that_is_given_is_used_even_if_no_file_is_there(
    by_variable: bool, default_list: Path
) -> None:
    """Then the error names this path, as for every other file that is given."""
    path = str(default_list)
    found = config_of(DCGM_EXPORTER_COLLECTORS=path) if by_variable else config_of("-f", path)
    assert list_of(found) == path
    assert not any("own copy" in text for _, text in found.remarks)


def test_a_configmap_needs_no_file(default_list: Path) -> None:
    found = config_of("-m", "gpus:counters")
    assert value_at(found.text, "counters.file") is None
    assert not any("own copy" in text for _, text in found.remarks)


def test_the_default_path_names_a_list_of_the_package() -> None:
    assert (SHIPPED_LISTS / Path(str(DEFAULT)).name).is_file()
