"""The fake driver library for this folder."""

import pytest

from sources.nvml import watch
from tests.fakes.nvml.fixtures import fake_nvml

__all__ = ["fake_nvml", "short_waits"]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stopping source not wait for the end of a long wait for XIDs."""
    monkeypatch.setattr(watch, "SLICE", 0.03)
