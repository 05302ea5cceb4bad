"""Fixture: a web configuration file, and real listeners that use it."""

from pathlib import Path

import pytest

from tests.support.web import Web


@pytest.fixture
def web(tmp_path: Path) -> Web:
    return Web(tmp_path)
