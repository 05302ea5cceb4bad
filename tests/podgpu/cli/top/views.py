"""Frames of `podgpu top`, drawn without a terminal."""

from functools import cache

from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.ui_state import State, pressed
from podgpu.cli.top.view import DaemonStatus, Frame, frame
from tests.pipeline.status_page.scenes import status


@cache
def document_of(name: str) -> StatusDocument:
    """Return the document of a scene, which no test changes."""
    return status(name)


def frame_of(
    name: str | StatusDocument, state: State | None = None, columns: int = 80, height: int = 24
) -> Frame:
    found = document_of(name) if isinstance(name, str) else name
    return frame(DaemonStatus(found), state or State(), columns, height)


def lines(name: str | StatusDocument, state: State | None = None, columns: int = 80) -> list[str]:
    """Return all lines of the body, without trailing blanks and empty lines."""
    shown = frame_of(name, state, columns, 1000).lines[3:-1]
    return [line.rstrip() for line, _ in shown if line.strip()]


def state_after(*keys: str, state: State | None = None) -> State:
    found = state or State()
    for key in keys:
        changed = pressed(found, key, 20)
        assert changed is not None
        found = changed
    return found
