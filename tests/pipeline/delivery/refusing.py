"""A receiver that refuses connections, and the warnings that were logged."""

import logging
from collections.abc import Callable

import pytest

from pipeline.delivery.contract import Outcome, Retry


def refuses(reason: str = "unavailable", after: float | None = None) -> Callable[..., Outcome]:
    return lambda _: Retry(reason, "collector:4317 refuses connections", after)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
