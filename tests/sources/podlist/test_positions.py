"""Positions in a pod list, for messages."""

import pytest

from sources.podlist.pod_list_file import place, value_offset


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, "1:1"), (2, "1:3"), (4, "2:1"), (6, "3:2"), (99, "3:3")],
)
def test_line_and_column_count_characters_not_bytes(offset: int, expected: str) -> None:
    assert place("aä\r\n\nxy", offset) == expected


@pytest.mark.parametrize(
    ("text", "item", "rest"),
    [
        ('{"k": 1}', None, "1}"),
        ('{"k":\r\n [1]}', None, "[1]}"),
        ('{"a": {"k": 1}, "k" : 2}', None, "2}"),
        ('{"k": 1, "k": 2}', None, "2}"),
        ('{"a": "k", "k": 2}', None, "2}"),
        ('{"a": ":{\\"k\\": 1,", "k": 2}', None, "2}"),
        ('{"\\u006b": 2}', None, "2}"),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 0, "1, ["),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 1, "[2, 3"),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 3, "6]}"),
        ('{"k": [1, 2], "k": [3, 4], "l": [5, 6]}', 1, "4],"),
        ('{"a": 1}', None, "{"),
    ],
)
def test_the_offset_of_a_value_is_found(text: str, item: int | None, rest: str) -> None:
    offset = value_offset(f"[1, {text}]", 4, "k", item) - 4
    assert text[offset:].startswith(rest)
