"""Helpers for the tests of the fake NVML."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.fakes.nvml import FakeNvml, Scenario


def error_of(call: Callable[..., Any], *args: object) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*args)
    code: int = caught.value.value
    return code


def start(fake: FakeNvml, scenario: Scenario | None = None) -> Any:
    if scenario is not None:
        fake.set(scenario)
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0) if fake.scenario.gpus else None
