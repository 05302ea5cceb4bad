"""A call for many field values may leave some of them without an answer."""

import ctypes
from collections.abc import Callable, Collection
from typing import Any

import pytest

from pipeline.model import Instant
from sources.nvml import codes
from sources.nvml.composite_readers import FieldValueRequest, batch
from sources.nvml.reader_parts import GpuReadings

AT = Instant(1, 1)
UNSIGNED = 1  # NVML_VALUE_TYPE_UNSIGNED_INT


class Driver:
    """Takes the place of a GPU: each field value is its id, and at most `room` have an answer.

    Args:
        room: how many entries of a call have an answer.
        never: ids that have none even by themselves.
        unsupported: ids that this GPU lacks.
    """

    def __init__(
        self, room: int, never: Collection[int] = (), unsupported: Collection[int] = ()
    ) -> None:
        self.room, self.never, self.unsupported = room, never, unsupported
        self.calls: list[list[int]] = []
        self.fails = codes.OK

    def bind(self, _: str, count: ctypes.c_int, values: Any) -> Callable[[], int]:
        def call() -> int:
            assert count.value == len(values)
            self.calls.append([value.fieldId for value in values])
            if self.fails:
                return self.fails
            for value in list(values)[: self.room]:
                if value.fieldId not in self.never:
                    lacks = value.fieldId in self.unsupported
                    value.nvmlReturn = codes.NOT_SUPPORTED if lacks else codes.OK
                    value.valueType, value.value.uiVal = UNSIGNED, value.fieldId + len(self.calls)
            return codes.OK

        return call


class Reading:
    """Reads ids 1 to `count`."""

    def __init__(self, driver: Driver, count: int) -> None:
        self.values: dict[int, float] = {}

        def taken(number: int) -> FieldValueRequest:
            def on_value(_: GpuReadings, __: Instant, value: float) -> int:
                assert number not in self.values, "two values of one reading"
                self.values[number] = value
                return codes.OK

            return FieldValueRequest(number, on_value)

        self.errors: list[int] = []
        self._read = batch(driver, [taken(number) for number in range(1, count + 1)])  # type: ignore[arg-type]

    def __call__(self) -> int:
        self.values.clear()
        result = GpuReadings("GPU-1", AT)
        code = self._read(result, AT)
        self.errors = result.errors
        return code


@pytest.mark.parametrize("room", [1, 2, 3, 7, 8, 100])
def test_each_value_is_read_once_in_each_round(room: int) -> None:
    driver = Driver(room)
    read = Reading(driver, 8)
    before = 0
    for _ in range(3):
        before = len(driver.calls)
        assert read() == codes.OK
        assert read.values.keys() == set(range(1, 9)), "also in the first round"
        # A value is of this round: it contains the number of its call.
        assert all(before < value - number for number, value in read.values.items())
    assert len(driver.calls) - before == -(-8 // room), "no call is repeated in vain"


def test_a_value_without_an_answer_is_unknown_and_not_the_earlier_one() -> None:
    driver = Driver(100)
    read = Reading(driver, 3)
    read()
    driver.never = [2]
    assert read() == codes.OK
    assert read.values.keys() == {1, 3}
    assert read.errors == []
    driver.never = []
    read()
    assert read.values.keys() == {1, 2, 3}


def test_values_of_a_call_without_any_answer_are_read_one_by_one() -> None:
    driver = Driver(100, never=[1, 2])
    read = Reading(driver, 2)
    assert read() == codes.NOT_SUPPORTED
    assert driver.calls == [[1, 2], [1], [2]]
    assert read() == codes.NOT_SUPPORTED
    assert driver.calls[3:] == [[1], [2]]


def test_unsupported_values_are_answers() -> None:
    driver = Driver(100, unsupported=[1, 2, 3])
    read = Reading(driver, 3)
    assert read() == codes.NOT_SUPPORTED
    assert driver.calls == [[1, 2, 3]]


def test_a_failed_call_fails_the_reader_and_loses_no_request() -> None:
    driver = Driver(2)
    read = Reading(driver, 5)
    read()
    driver.fails = codes.GPU_IS_LOST
    assert read() == codes.GPU_IS_LOST
    driver.fails = codes.OK
    assert read() == codes.OK
    assert read.values.keys() == {1, 2, 3, 4, 5}
