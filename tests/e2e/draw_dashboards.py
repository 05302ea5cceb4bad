"""Draw the dashboards with the data of a running Prometheus, as one SVG for each.

    python -m tests.e2e.draw_dashboards 9090 DIR [--seconds 600] [--end UNIX_TIME]

The port is that of a Prometheus on this machine that scrapes podgpu. `--boards` draws the
dashboards of another folder, to compare with an earlier release.
"""

import argparse
import json
import time
from pathlib import Path

from tests.deploy.dashboards import FOLDER
from tests.deploy.drawing.board import board
from tests.e2e.dashboard_viewer import Viewer
from tests.e2e.promql import QueriedPrometheus


class Running(QueriedPrometheus):
    """A Prometheus that was started elsewhere."""

    def __init__(self, port: int) -> None:
        self.port = port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=int, default=600, help="the time range shown")
    parser.add_argument("--scrape", type=int, default=1, help="seconds between two scrapes")
    parser.add_argument("--end", type=float, default=time.time(), help="the end of the time range")
    parser.add_argument("--boards", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(arguments.boards.glob("*.json")):
        viewer = Viewer(
            Running(arguments.port),
            json.loads(path.read_text()),
            end=arguments.end,
            seconds=arguments.seconds,
            scrape_interval=arguments.scrape,
        )
        drawn = arguments.out / f"{path.stem}.svg"
        drawn.write_text(board(viewer.dashboard, viewer.shows, viewer.values))
        print(drawn, flush=True)


if __name__ == "__main__":
    main()
