"""Screens of `podgpu top` on a node that has everything, compared with stored ones.

`PODGPU_WRITE_GOLDEN=1` writes them.
"""

import os
from pathlib import Path

import pytest

from podgpu.cli.terminal_text import width
from podgpu.cli.top.command import plain
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.view import frame
from tests.podgpu.cli.top.views import screen, state_after, texts
from tests.podgpu.cli.top.whole_node import whole_node

GOLDEN = Path(__file__).parent / "golden"

SCREENS = {
    "overview-40x24": ("", 40, 24),
    "overview-40x100": ("", 40, 100),
    "overview-80x24": ("", 80, 24),
    "overview-80x60": ("", 80, 60),
    "overview-120x60": ("", 120, 60),
    "overview-200x60": ("", 200, 60),
    "details-80x90": ("xea", 80, 90),
    "problems-40x60": ("!", 40, 60),
    "problems-80x24": ("!", 80, 24),
    "usage-40x60": ("d", 40, 60),
    "usage-80x50": ("d", 80, 50),
    "components-40x24": ("s", 40, 24),
    "components-80x24": ("s", 80, 24),
    "help-80x40": ("?", 80, 40),
}


def compare(name: str, lines: list[str]) -> None:
    path, made = GOLDEN / f"{name}.txt", "".join(f"{line}\n" for line in lines)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str) -> None:
    keys, columns, height = SCREENS[name]
    shown = screen(whole_node(), state_after(*keys), columns, height)
    assert len(shown) == height
    assert max(map(width, shown)) <= columns
    compare(name, shown)


def test_a_screen_without_a_response() -> None:
    daemon = DaemonStatus(whole_node(), 125.0, "no server responds at http://127.0.0.1:9400")
    shown = texts(frame(daemon, state_after(), 80, 24))
    compare("no-response-80x24", [line.rstrip() for line in shown])


def test_the_text_for_a_pipe() -> None:
    lines = plain(whole_node(), 140)
    assert max(map(len, lines)) <= 140
    compare("once-140", lines)


def test_there_is_no_stored_screen_without_a_test() -> None:
    names = {*SCREENS, "no-response-80x24", "once-140"}
    assert {path.stem for path in GOLDEN.iterdir()} == names
