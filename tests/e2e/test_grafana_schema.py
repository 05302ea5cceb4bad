"""The dashboards are valid by the types that Grafana publishes for them.

Grafana itself does not run here. Its types (grafana-foundation-sdk) know each field of a dashboard,
of its panels with their options, and of queries; unknown and missing fields are errors.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dashboards import FOLDER
from tests.e2e import peers

pytestmark = [pytest.mark.more, pytest.mark.timeout(600)]


def checked(*files: Path) -> tuple[int, str]:
    """Return the exit status and the errors of the check."""
    done = subprocess.run(
        [peers.grafana_schema(), *files], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_the_dashboards_are_valid() -> None:
    files = sorted(FOLDER.glob("*.json"))
    assert files
    assert checked(*files) == (0, "")


def first(dashboard: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in dashboard["panels"] if each["type"] == kind)
    return found


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "unexpected field": lambda made: made.update(refreshing="30s"),
    "panels": lambda made: first(made, "stat").update(gridPos="left"),
    "options": lambda made: first(made, "stat")["options"].update(graphMode=1),
    "legendFormat": lambda made: first(made, "stat")["targets"][0].update(legendFormat=1),
    "cellOptions": lambda made: first(made, "table")["fieldConfig"]["defaults"]["custom"].update(
        cellOptions={"type": 5}
    ),
    "thresholds": lambda made: first(made, "stat")["fieldConfig"]["defaults"].update(
        thresholds={"steps": "red"}
    ),
    "annotations": lambda made: made["annotations"]["list"][0].update(useValueForTime="on"),
    "templating": lambda made: made["templating"]["list"][0].update(type=3),
}


@pytest.mark.parametrize("word", list(BROKEN))
def test_the_check_finds_what_is_wrong(word: str, tmp_path: Path) -> None:
    made = json.loads((FOLDER / "fleet.json").read_text())
    BROKEN[word](made)
    file = tmp_path / "broken.json"
    file.write_text(json.dumps(made))
    status, errors = checked(file)
    assert status == 1
    assert word in errors
