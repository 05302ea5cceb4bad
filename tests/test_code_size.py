"""The counts of `python -m tests.support.code_size`."""

import pytest

from tests.support.code_size import Size, size_of, sizes
from tests.support.words import ROOT

MODULE = '''"""A docstring
over two lines."""

# A comment.
LIMIT = (  # with a comment
    1,

    2,
)


def double(value: int) -> int:
    """A docstring."""
    return 2 * value; pass  # two statements on one line
'''


def test_comments_docstrings_and_blank_lines_are_not_counted() -> None:
    assert size_of(MODULE) == Size(lines=6, statements=4, modules=1)


def test_a_text_that_is_a_value_is_code() -> None:
    assert size_of('TEXT = """one\ntwo"""\n') == Size(lines=2, statements=1, modules=1)


@pytest.mark.slow
def test_every_package_of_the_product_is_counted() -> None:
    found = sizes(ROOT)
    assert {"podgpu/cli", "sources/nvml", "sinks/otlp", "pipeline/join", "config"} <= set(found)
    assert all(size.modules for size in found.values())
