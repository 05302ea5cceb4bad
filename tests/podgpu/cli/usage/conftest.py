"""A ledger of one day, and a clock that is stopped at its end."""

from pathlib import Path

import pytest

from pipeline.model import Instant
from podgpu.cli.usage import command
from tests.pipeline.ledger.open_ledger import moved
from tests.podgpu.cli.usage.ledgers import LAST, write_day
from tests.support.nodes import START


class _Stopped:
    def now(self) -> Instant:
        return moved(START, LAST * 3600 + 40)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the ledger; tests only read it."""
    return write_day(tmp_path_factory.mktemp("ledger") / "ledger.db")


@pytest.fixture
def ledger(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the ledger, with the command's clock stopped at the end of that day."""
    monkeypatch.setattr(command, "SystemClock", _Stopped)
    return written
