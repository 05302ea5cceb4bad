"""Writes the dashboards into the chart."""

from pathlib import Path

from deploy.dashboards import DASHBOARDS
from deploy.dashboards.writing import text

FOLDER = Path(__file__).parents[1] / "chart" / "files" / "dashboards"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(text(dashboard))
