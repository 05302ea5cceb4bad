"""Frames of `podgpu top`, drawn without a terminal."""

from functools import cache

from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.styled_text import plain_text
from podgpu.cli.top.ui_state import State, pressed
from podgpu.cli.top.view import Frame, device_lines, frame
from tests.pipeline.status_page.scenes import status


@cache
def document_of(name: str) -> StatusDocument:
    """Return the document of a scene, which no test changes."""
    return status(name)


def found_document(name: str | StatusDocument) -> StatusDocument:
    return document_of(name) if isinstance(name, str) else name


def frame_of(
    name: str | StatusDocument, state: State | None = None, columns: int = 80, height: int = 24
) -> Frame:
    return frame(DaemonStatus(found_document(name)), state or State(), columns, height)


def texts(shown: Frame) -> list[str]:
    return [plain_text(line) for line in shown.lines]


def screen(
    name: str | StatusDocument, state: State | None = None, columns: int = 80, height: int = 24
) -> list[str]:
    """Return the lines of a screen without trailing blanks."""
    return [line.rstrip() for line in texts(frame_of(name, state, columns, height))]


def lines(name: str | StatusDocument, state: State | None = None, columns: int = 80) -> list[str]:
    """Return all lines of the devices, without trailing blanks and empty lines."""
    shown = device_lines(found_document(name), state or State(), columns)
    return [text.rstrip() for line in shown if (text := plain_text(line.line)).strip()]


def state_after(*keys: str, state: State | None = None) -> State:
    found = state or State()
    for key in keys:
        changed = pressed(found, key, 20)
        assert changed is not None
        found = changed
    return found
