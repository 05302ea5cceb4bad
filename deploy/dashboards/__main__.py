"""Writes the dashboards and the recording rules into the chart."""

from pathlib import Path

from deploy.dashboards import DASHBOARDS
from deploy.dashboards.recording import rules_text
from deploy.dashboards.writing import text

FILES = Path(__file__).parents[1] / "chart" / "files"
FOLDER = FILES / "dashboards"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(text(dashboard))
    (FILES / "recording-rules.yaml").write_text(rules_text())
