"""Time zones by name."""

import re
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import pytest

from config.time_zones import zone, zone_name
from config.value_types import FormatError


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Etc/GMT-14"])
def test_a_zone_has_the_name_by_which_it_was_found(name: str) -> None:
    assert zone_name(zone(name)) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Europe/Berln", '"Europe/Berln" is not a time zone; did you mean "Europe/Berlin"?'),
        ("", '"" is not a time zone; write a name such as Europe/Berlin, or UTC'),
        ("Europe", "is not a time zone"),
        ("+02:00", "is not a time zone"),
        ("../../etc/passwd", "is not a time zone"),
        ("/etc/localtime", "is not a time zone"),
        ("x" * 5000, "write a name such as Europe/Berlin, or UTC"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        zone(text)


@pytest.mark.slow
def test_without_a_time_zone_database_only_utc_is_known() -> None:
    """As in an image without the package tzdata."""
    assert zone("UTC") is UTC
    code = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from config.time_zones import zone, zone_name\n"
        "assert zone_name(zone('UTC')) == 'UTC'\n"
        "try: zone('Europe/Berlin')\n"
        "except ValueError as error: print(error)"
    )
    environment = {"PYTHONTZPATH": "", "PYTHONPATH": str(Path.cwd())}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == (
        '"Europe/Berlin" is unknown, because this system has no time zone database; install the '
        "system's package tzdata or the Python package tzdata, or write UTC\n"
    )
