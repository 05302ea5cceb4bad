"""What is said of errors that end podgpu."""

from pipeline.runtime.daemon import texts


def test_each_error_speaks_however_deep_it_lies() -> None:
    inner = ExceptionGroup("a task group", [OSError("no space left"), ValueError("line 3")])
    outer = ExceptionGroup("another", [inner, OSError("port taken")])
    assert texts(outer) == ["no space left", "line 3", "port taken"]
