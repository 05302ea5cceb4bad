"""Regular expressions as values of options, in the syntax of Go and Prometheus.

RE2 matches them. Its time is linear in the length of the text for every pattern, whereas Python's
own engine may take years for `(a+)+b`. The library of RE2 is loaded only if a pattern is
configured.
"""

from collections.abc import Callable
from typing import Final

from config.value_types import FormatError

_LONGEST: Final = 1000
"""The maximum length of a pattern in characters; use a list of globs for very many names."""

_MEMORY_BYTES: Final = 1 << 20
"""The maximum memory of a compiled pattern in bytes."""


def parse_pattern(text: str) -> Callable[[str], bool]:
    """Return a function that returns whether the pattern matches anywhere in a text.

    Raises:
        FormatError: The pattern is not a regular expression, or is too large.
    """
    import re2  # noqa: PLC0415 - 1 MB that most configurations do not need

    if len(text) > _LONGEST:
        raise FormatError(text, "is too long", f"the maximum is {_LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        search = re2.compile(text, options).search
    except re2.error as error:
        problem = error.args[0].decode()
        if "too large" in problem:
            hint = "use fewer repetitions, or several patterns"
            raise FormatError(text, "is too large a regular expression", hint) from None
        hint = "write it in the syntax of Go and Prometheus"
        raise FormatError(text, f"is not a regular expression: {problem}", hint) from None
    return lambda name: search(name) is not None
