from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.kernel.logs import Kmsg


@pytest.fixture
def kmsg(tmp_path: Path) -> Iterator[Kmsg]:
    log = Kmsg(tmp_path / "kmsg")
    yield log
    log.close()
