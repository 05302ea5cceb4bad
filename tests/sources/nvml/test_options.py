"""The options of the nvml source: defaults and refused values."""

import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse_struct
from config.value_types import Duration
from sources.nvml.options import Options


def test_the_documented_defaults_are_the_real_ones() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sources" / "nvml.md").read_text()
    defaults = Options()
    for name in ("interval", "slow_interval", "deadline"):
        assert f"| `{name}` | `{getattr(defaults, name)}` |" in page
    for name in ("usage_interval", "proc", "devices", "xid_window", "clock_events_window"):
        assert f"| `{name}` | `{getattr(defaults, name)}` |" in page
    for name in ("processes", "usage"):
        assert f"| `{name}` | `{str(getattr(defaults, name)).lower()}` |" in page


def test_a_slow_interval_below_the_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="slow_interval 5s is less than interval 10s"):
        Options(interval=Duration(10), slow_interval=Duration(5))


@pytest.mark.parametrize(
    ("text", "message"),
    [("999ms", "the minimum is 1s"), ("11s", "the maximum is 10s"), ("1s", ""), ("10s", "")],
)
def test_the_usage_interval_has_the_limits_of_the_driver_s_samples(text: str, message: str) -> None:
    if message:
        with pytest.raises(ConfigError, match=message):
            parse_struct(f"usage_interval: {text}\n", Options, origin="file")
    else:
        options = parse_struct(f"usage_interval: {text}\n", Options, origin="file")
        assert str(options.usage_interval) == text


def test_the_options_do_not_import_pynvml() -> None:
    code = "import sys, sources.nvml.options; sys.exit('pynvml' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
