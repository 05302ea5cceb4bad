"""Holds what a component warns of in its log against what it tells those who look at it."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.base.telemetry import LastProblem, Telemetry

_COMPONENT = re.compile(r"podgpu\.(test|sinks|sources)\.")
"""Loggers of components: of a fake context, and of the daemon's."""


class _Warned(logging.Handler):
    """Keeps the warnings of components."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if _COMPONENT.match(record.name):
            self.texts.append(record.getMessage())


@contextmanager
def every_warning_stands() -> Iterator[None]:
    """Fail unless each warning of a component has stood as the trouble of one, in its words."""
    stood: set[str] = set()
    tell = Telemetry.set_problem

    def noting(self: Telemetry, owner: tuple[str, str], trouble: LastProblem) -> None:
        stood.add(trouble.text)
        tell(self, owner, trouble)

    handler, root = _Warned(), logging.getLogger("podgpu")
    root.addHandler(handler)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Telemetry, "set_problem", noting)
        try:
            yield
        finally:
            root.removeHandler(handler)
    # A supervisor's warning says besides that and when it tries again.
    alone = [said for said in handler.texts if not any(text in said for text in stood)]
    assert not alone, f"warned of in the log alone: {alone}"
