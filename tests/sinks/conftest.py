"""For every test of a sink: each warning in the log is on the status page too."""

from collections.abc import Iterator

import pytest

from tests.support.warning_check import warnings_are_on_the_status_page


@pytest.fixture(autouse=True)
def _every_warning_stands() -> Iterator[None]:
    with warnings_are_on_the_status_page():
        yield
