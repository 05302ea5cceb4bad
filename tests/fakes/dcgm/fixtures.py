"""The pytest fixture `fake_dcgm`. A conftest.py imports it for its folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.hostengine import library
from tests.fakes.dcgm.fake import FakeDcgm
from tests.fakes.dcgm.scenario import Card, Scenario


@pytest.fixture
def fake_dcgm(tmp_path: Path) -> Iterator[FakeDcgm]:
    """Return an engine with one busy A100. set() changes the scenario."""
    folder = tmp_path / "dcgm"
    folder.mkdir()
    library._LOADED.clear()
    fake = FakeDcgm(Scenario((Card(0, values={1001: 0.5, 1004: 0.25, 1009: 1000}),)), folder)
    yield fake
    # No call hangs in an empty scenario, so threads that still hang in a call end.
    fake.set(Scenario())
