"""Check that each warning in the log of a component is on the status page too."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipeline.base.telemetry import LastProblem, Telemetry

_COMPONENT = re.compile(r"podgpu\.(test|sinks|sources)\.")
"""Loggers of components: those of the fake contexts and those of the runtime."""


class _Warned(logging.Handler):
    """Keeps the warnings of components."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if _COMPONENT.match(record.name):
            self.texts.append(record.getMessage())


@contextmanager
def warnings_are_on_the_status_page() -> Iterator[None]:
    """Fail unless each logged warning contains a problem that a component has set."""
    problems: set[str] = set()
    set_problem = Telemetry.set_problem

    def recording(self: Telemetry, owner: tuple[str, str], problem: LastProblem) -> None:
        problems.add(problem.text)
        set_problem(self, owner, problem)

    handler, root = _Warned(), logging.getLogger("podgpu")
    root.addHandler(handler)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Telemetry, "set_problem", recording)
        try:
            yield
        finally:
            root.removeHandler(handler)
    # The warning of a supervisor also has the time of the next attempt.
    missing = [text for text in handler.texts if not any(problem in text for problem in problems)]
    assert not missing, f"warnings that are only in the log: {missing}"
