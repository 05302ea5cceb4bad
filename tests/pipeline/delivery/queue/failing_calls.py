"""System calls that fail, and a queue that falls back to memory."""

import os
from pathlib import Path

import pytest

from tests.pipeline.delivery.queue.support import Bench, Failing


def failing(patch: pytest.MonkeyPatch, name: str, error: int) -> Failing:
    call = Failing(getattr(os, name), error)
    patch.setattr(os, name, call)
    return call


def safe(tmp_path: Path, **kwargs: float) -> Bench:
    return Bench("safe", tmp_path / "queue", **kwargs)  # type: ignore[arg-type]
