"""A web config to write, and real listeners that it holds for."""

from pathlib import Path

import pytest

from tests.support.web import Web


@pytest.fixture
def web(tmp_path: Path) -> Web:
    return Web(tmp_path)
