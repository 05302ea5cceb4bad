"""Tests of the limit on log lines of one kind, from podgpu, libraries and Python."""

import io
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base import log_rate_limit
from pipeline.base.log_rate_limit import EACH, KINDS, BoundedHandler
from pipeline.base.logs import LONGEST, JsonFormatter, TextFormatter
from tests.support.examples import examples

LEFT_OUT = re.compile(r"^(\d+) more lines like the following.* were left out in the last minute")


class Log:
    """A handler with a limit, and records for it whose time the test sets."""

    def __init__(self, formatter: logging.Formatter | None = None) -> None:
        self.stream = io.StringIO()
        self.handler = BoundedHandler(self.stream)
        self.handler.setFormatter(formatter or logging.Formatter("%(message)s"))
        self.second = 1_800_000_000.0

    def write(
        self,
        text: str,
        *args: object,
        line: int = 1,
        name: str = "asyncio",
        level: int = logging.ERROR,
        error: Exception | None = None,
    ) -> None:
        info = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord(name, level, "code.py", line, text, args, info)
        record.created = self.second
        self.handler.handle(record)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def left_out(self) -> int:
        """Close the handler and return how many lines it reports as left out."""
        self.handler.close()
        return sum(int(found[1]) for found in map(LEFT_OUT.match, self.lines) if found)


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.handler.close()


def an_error(depth: int = 0, text: str = "out of descriptors") -> OSError:
    try:
        if depth:
            raise an_error(depth - 1, text)
        raise OSError(24, text)  # noqa: TRY301 - the function returns it
    except OSError as error:
        return error


@pytest.mark.slow
def test_r7_a_hundred_thousand_lines_of_one_kind_become_ten_lines_and_a_count(log: Log) -> None:
    for number in range(100_000):
        log.write("socket.accept() out of system resource: fd %d at 0x%x", number % 9, number * 8)
    assert len(log.lines) == EACH
    assert log.left_out() == 100_000 - EACH
    assert len(log.lines) == EACH + 1
    assert "socket.accept() out of system resource" in log.lines[-1]


@pytest.mark.parametrize("where", [{}, {"line": 2}, {"name": "grpc"}])
def test_the_limit_of_one_kind_of_line_hides_no_other_kind(log: Log, where: dict[str, Any]) -> None:
    """The other is logged by the same line of code, another line, or another library."""
    for _ in range(1000):
        log.write("%s", "the disk is full")
    log.write("%s", "the receiver is away", **where)
    assert log.lines[-1] == "the receiver is away"
    assert len(log.lines) == EACH + 1


def test_lines_with_different_exception_types_are_different_kinds(log: Log) -> None:
    for _ in range(1000):
        log.write("Exception in callback", error=an_error())
    log.write("Exception in callback", error=ValueError("another"))
    assert sum("ValueError" in each for each in log.lines) == 1


@pytest.mark.slow
def test_a_text_that_varies_makes_a_bounded_number_of_lines(log: Log) -> None:
    for number in range(10_000):
        word = "".join(chr(ord("g") + int(digit)) for digit in str(number))
        log.write("pod %s is not known", word)
    assert len(log.lines) == KINDS
    assert log.left_out() == 10_000 - KINDS
    assert "others from the same place in the code" in log.lines[-1]


def test_r7_one_kind_has_one_traceback_per_minute(log: Log) -> None:
    for minute in range(3):
        log.second = 1_800_000_000 + minute * 61
        for _ in range(1000):
            log.write("socket.accept() out of system resource", error=an_error())
    text = log.stream.getvalue()
    assert text.count("Traceback (most recent call last)") == 3
    assert text.count("(with a traceback as above)") == 3 * (EACH - 1)


@pytest.mark.parametrize("formatter", [TextFormatter("%(message)s"), JsonFormatter()])
def test_the_length_of_a_traceback_and_of_a_message_is_bounded(
    formatter: logging.Formatter,
) -> None:
    log = Log(formatter)
    log.write("x" * 1_000_000, error=an_error(200, "y" * 100_000))
    assert len(log.stream.getvalue()) < 3 * LONGEST
    assert "characters left out" in log.stream.getvalue()
    log.handler.close()


def test_after_a_minute_lines_appear_again_after_the_count_of_those_left_out(log: Log) -> None:
    for _ in range(25):
        log.write("the disk is full")
    log.second += 59
    log.write("the disk is full")
    assert len(log.lines) == EACH
    log.second += 1
    log.write("something else", line=7)
    assert log.lines[EACH:] == [
        "16 more lines like the following were left out in the last minute: the disk is full",
        "something else",
    ]
    log.write("the disk is full")
    assert log.lines[-1] == "the disk is full"


def test_lines_are_logged_after_the_clock_is_set_back(log: Log) -> None:
    for _ in range(25):
        log.write("the disk is full")
    log.second -= 86_400
    log.write("the disk is full")
    assert log.lines[-1] == "the disk is full"
    assert log.left_out() == 15


def test_the_count_is_logged_although_no_other_line_is(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rate_limit, "SECONDS", 0.05)
    for _ in range(25):
        log.write("the disk is full")
    deadline = time.perf_counter() + 5
    while len(log.lines) == EACH and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert log.lines[EACH:] == [
        "15 more lines like the following were left out in the last minute: the disk is full"
    ]


def test_logging_never_raises(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without threads, with values that have no text, and after the handler is closed."""

    class Bad:
        def __str__(self) -> str:
            raise KeyError

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    for _ in range(100):
        log.write("the disk is full")
        log.write("%s", Bad(), line=2)
        log.write("%d", "no number", line=3)
    assert len(log.lines) == EACH
    assert capsys.readouterr().err.count("Logging error") == 2 * EACH
    log.handler.close()
    log.write("after the end")
    assert log.lines[-1] == "after the end"


def test_debug_lines_are_not_limited(log: Log) -> None:
    for _ in range(1000):
        log.write("sent", level=logging.DEBUG)
    assert len(log.lines) == 1000


def test_the_handler_keeps_no_arguments_and_exceptions_alive(log: Log) -> None:
    for number in range(100):
        log.write("pod %s", object(), error=an_error(), line=number)
    for span in log.handler._limit._spans.values():
        for kind in span.kinds.values():
            assert (kind.shown.args, kind.shown.exc_info) == (None, None)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from("gh"), st.text("ghij", max_size=4), st.integers(0, 9)
        ),
        max_size=400,
    )
)
@settings(deadline=None, max_examples=examples(50))
def test_each_record_is_a_line_or_is_counted(records: list[tuple[int, str, str, int]]) -> None:
    log = Log()
    for number, name, text, seconds in records:
        log.second += seconds
        log.write("text %s", text, line=number, name=name)
    log.handler.close()
    written = [text for text in log.lines if not LEFT_OUT.match(text)]
    assert len(written) + log.left_out() == len(records)


PROGRAM = """
import asyncio, logging, sys, threading
from pipeline.base.logs import set_up
set_up("info", "{form}")
{body}
"""


def asyncio_errors() -> str:
    return (
        "loop = asyncio.new_event_loop()\n"
        "for n in range(2000):\n"
        "    loop.call_exception_handler({'message': 'socket.accept() out of system resource',\n"
        "        'exception': OSError(24, 'Too many open files'), 'socket': f'<fd={n}>'})\n"
    )


def failing_threads() -> str:
    return (
        "for n in range(300):\n"
        "    t = threading.Thread(target=lambda: 1 / 0)\n"
        "    t.start(); t.join()\n"
    )


def failing_finalizers() -> str:
    return (
        "class Bad:\n"
        "    def __del__(self): raise ValueError('gone')\n"
        "for n in range(2000):\n"
        "    Bad()\n"
    )


# The limit comes before the form, so each is needed with one of the bodies only.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "word", "count", "form"),
    [
        (asyncio_errors, "Too many open files", 2000, "text"),
        (failing_threads, "ZeroDivisionError", 300, "json"),
        (failing_finalizers, "gone", 2000, "text"),
    ],
    ids=["asyncio", "threads", "unraisable"],
)
def test_r7_the_log_lines_of_libraries_and_python_are_bounded(
    body: Callable[[], str], word: str, count: int, form: str
) -> None:
    """R7: 20,000 errors in asyncio wrote 20,000 tracebacks."""
    text = PROGRAM.format(form=form, body=body())
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=25, check=True
    )
    assert word in done.stderr
    assert len(done.stderr) < 20_000
    assert done.stderr.count("Traceback (most recent call last)") <= 1
    assert f"{count - EACH} more lines like the following" in done.stderr
