"""Reads the elements of a JSON list, and accepts texts that are not strictly valid.

Texts that podgpu does not need may contain what strict JSON in UTF-8 does not allow: half of a
surrogate pair, which Python writes for bytes that are not text; and bytes that are not UTF-8, which
become surrogates. Numbers that are too large for floats become infinity.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_KINDS: Final = {dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
_DIGITS_OF_INT: Final = 19
"""Integers with more digits become floats: Python converts no text of thousands of digits."""


class ListError(Exception):
    """The text is not a JSON list.

    Attributes:
        offset: offset of the character at which the error was found.
    """

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.offset = offset


def text_of(data: bytes) -> str:
    """Return the content of a file as text, without a byte order mark."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def elements(text: str) -> Iterator[tuple[int, int, object]]:
    """Yield start offset, end offset and value of each element of a list, up to an error.

    Raises:
        ListError: the text is not a list, or is not JSON after the elements that were yielded.
        RecursionError: an element is nested too deeply.
    """
    begin = skip_space(text, 0)
    if not text.startswith("[", begin):
        value, _ = decode(text, begin)
        raise ListError(f"expected a list, found {_KINDS.get(type(value), 'a number')}", begin)
    offset = skip_space(text, begin + 1)
    mark = text[offset : offset + 1]
    while mark != "]":
        value, end = decode(text, offset)
        yield offset, end, value
        offset = skip_space(text, end)
        mark = text[offset : offset + 1]
        if mark == ",":
            offset = skip_space(text, offset + 1)
        elif mark != "]":
            raise _error(text, "expecting ',' delimiter", offset)
    if (offset := skip_space(text, offset + 1)) < len(text):
        raise _error(text, "trailing characters", offset)


def skip_space(text: str, offset: int) -> int:
    """Return the offset of the next character that is not white space."""
    found = _SPACE.match(text, offset)
    return found.end() if found else offset


def decode(text: str, offset: int) -> tuple[object, int]:
    """Return the value that begins at an offset, and the offset of its end.

    Raises:
        ListError: there is no valid value at the offset.
        RecursionError: the value is nested too deeply.
    """
    try:
        return _decoder.raw_decode(text, offset)
    except json.JSONDecodeError as error:
        cut_off = error.msg.startswith("Unterminated")
        raise _error(text, error.msg.lower(), len(text) if cut_off else error.pos) from None
    except ValueError as error:
        raise _error(text, str(error), offset) from None


def _error(text: str, problem: str, offset: int) -> ListError:
    if offset >= len(text):
        return ListError("ends too early", len(text))
    return ListError(f"JSON is malformed: {problem}", offset)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS_OF_INT else float(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


_decoder: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse)
