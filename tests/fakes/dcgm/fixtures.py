"""The pytest fixture; a conftest.py imports it to offer it to its folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.hostengine import library
from tests.fakes.dcgm.fake import FakeDcgm
from tests.fakes.dcgm.scenario import Card, Scenario


@pytest.fixture
def fake_dcgm(tmp_path: Path) -> Iterator[FakeDcgm]:
    """An engine with one busy A100; set() changes what it plays."""
    folder = tmp_path / "dcgm"
    folder.mkdir()
    library._LOADED.clear()
    fake = FakeDcgm(Scenario((Card(0, values={1001: 0.5, 1004: 0.25, 1009: 1000}),)), folder)
    yield fake
    # Nothing hangs in an empty scenario: threads that a test left in a call come back.
    fake.set(Scenario())
