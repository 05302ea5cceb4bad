"""For every test of a sink: what it warns of in the log, the status page tells too."""

from collections.abc import Iterator

import pytest

from tests.support.warned import every_warning_stands


@pytest.fixture(autouse=True)
def _every_warning_stands() -> Iterator[None]:
    with every_warning_stands():
        yield
