"""The bound of the error of a split, from the contested time."""

import pytest

from pipeline.model import split_error_ns

S = 10**9


@pytest.mark.parametrize(
    ("contested", "switching", "expected"),
    [
        pytest.param(0, 0, 0, id="a sole user is exact"),
        pytest.param(5 * S, 0, 2 * S, id="two standard errors of 25 windows of 200 ms"),
        pytest.param(20 * S, S, 5 * S, id="four times the time has twice the error"),
        pytest.param(None, 0, None, id="unknown"),
        pytest.param(0, None, None, id="partly unknown"),
        pytest.param(-S, -S, 0, id="amounts of a damaged file"),
    ],
)
def test_the_bound(contested: int | None, switching: int | None, expected: int | None) -> None:
    assert split_error_ns(contested, switching) == expected
