"""Tests of the messages of errors that end podgpu."""

from pipeline.runtime.daemon import texts


def test_all_errors_in_nested_exception_groups_are_shown() -> None:
    inner = ExceptionGroup("a task group", [OSError("no space left"), ValueError("line 3")])
    outer = ExceptionGroup("another", [inner, OSError("port taken")])
    assert texts(outer) == ["no space left", "line 3", "port taken"]
