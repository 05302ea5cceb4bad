"""The pytest fixture `fake_nvml`. A conftest.py imports it for its folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.fake import FakeNvml, reset_pynvml
from tests.fakes.nvml.nodes import h100s
from tests.fakes.nvml.scenario import Scenario


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    """Return a fake with one idle H100, loaded into this process. set() changes the scenario."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    fake = FakeNvml(h100s(1), folder)
    fake.load_in_process()
    fake.calls(reset=True)
    reset_pynvml()
    yield fake
    # No call blocks in an empty scenario, so threads that still hang in a call end.
    fake.set(Scenario())
    reset_pynvml()
