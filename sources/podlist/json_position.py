"""Find the position of a value in a JSON text, for error messages."""

import re

import orjson

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_OPENING = (b"{", b"[")
_CLOSING = (b"}", b"]")


def line_and_column(text: bytes, offset: int) -> tuple[int, int]:
    """Return line and column of a byte, both starting at 1. The column counts characters."""
    offset = min(offset, len(text))
    start = text.rfind(b"\n", 0, offset) + 1
    line = text.count(b"\n", 0, offset) + 1
    return line, len(text[start:offset].decode("utf-8", "replace")) + 1


def value_offset(text: bytes, key: str, item: int | None = None) -> int:
    """Return where the value of a key begins in a well-formed JSON object.

    If the key occurs twice, the last one counts, as when the object is parsed.

    Args:
        text: the object, starting with its brace.
        key: a key of the object itself, not of a nested one.
        item: index of an element of the value, if the value is a list.

    Returns:
        The offset of the value or the element; 0 if there is none.
    """
    # Not with a recursive parser, which would fail on deep nesting.
    found, depth, name_next, inside, position = 0, 0, False, False, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
            if depth == 1:
                name_next = True
            elif depth == 2 and inside and item == 0:
                found = _skip_space(text, match.end())
        elif token in _CLOSING:
            depth -= 1
        elif token == b",":
            if depth == 1:
                name_next, inside = True, False
            elif depth == 2 and inside:
                position += 1
                if position == item:
                    found = _skip_space(text, match.end())
        elif token == b":":
            if depth == 1 and inside:
                position = 0
                found = _skip_space(text, match.end())
        elif depth == 1 and name_next:
            name_next, inside = False, _is(token, key)
    return found


def _is(token: bytes, key: str) -> bool:
    try:
        return bool(orjson.loads(token) == key)
    except orjson.JSONDecodeError:  # a lone surrogate, or not UTF-8
        return False


def _skip_space(text: bytes, offset: int) -> int:
    while text[offset : offset + 1].isspace():
        offset += 1
    return offset
