"""The pytest fixture; a conftest.py imports it to offer it to its folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.fake import FakeNvml, reset_pynvml
from tests.fakes.nvml.nodes import h100s
from tests.fakes.nvml.scenario import Scenario


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    """A fake with one idle H100, loaded into this process; set() changes what it plays."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    fake = FakeNvml(h100s(1), folder)
    fake.load_in_process()
    fake.calls(reset=True)
    reset_pynvml()
    yield fake
    # Nothing blocks in an empty scenario: threads that a test left in a call come back.
    fake.set(Scenario())
    reset_pynvml()
