"""Fixtures: a database, and an archive in a folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.archive.database import Database, open_database
from pipeline.archive.object_store import ObjectStore


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with one thread."""
    folder = tmp_path / "spilled"
    folder.mkdir()
    with open_database(folder) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An archive in an empty folder."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return ObjectStore(str(folder))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty folder for temporary files."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
