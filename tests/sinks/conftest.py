"""For every test of a sink: what it warns of in the log, the status page tells too."""

from collections.abc import Iterator

import pytest

from tests.support.warning_check import warnings_are_on_the_status_page


@pytest.fixture(autouse=True)
def _every_warning_stands() -> Iterator[None]:
    with warnings_are_on_the_status_page():
        yield
