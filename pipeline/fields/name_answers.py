"""Says what to do about a name that is none of podgpu's fields: what it means, or what is meant."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from pipeline.fields.dcgm_names import dcgm_names
from pipeline.fields.field_plan import all_words, called
from pipeline.fields.unavailable_names import OF_DCGM_EXPORTER, unavailable_reason

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz_"
_LONGEST: Final = 80
"""Characters of the longest name that is compared. DCGM's longest has 65."""


class NameAnswers:
    """Answers for unknown names.

    DCGM's table of names is read for the first name that needs it, and is freed with this object.
    """

    def about(self, name: str, *, guess: bool = True) -> str:
        """Return what to say about a name that no field has, without the name itself.

        A name that DCGM has is never taken for a misspelling of another one.

        Args:
            name: the name.
            guess: whether to look for the name that is meant.
        """
        if reason := unavailable_reason(name):
            return reason.text
        meant = self.misspelt(name) if guess else ""
        return f"is no known field; {_advice(meant, meant) or 'podgpu fields lists all fields'}"

    def hint(self, name: str) -> str:
        """Return the same as a hint that follows a message about the name; empty for none."""
        if reason := unavailable_reason(name):
            return f"it {reason.text}"
        meant = self.misspelt(name)
        return _advice(meant, f'"{meant}"')

    def misspelt(self, name: str) -> str:
        """Return the known name that differs in one slip: the case, or one letter.

        A letter is wrong, missing, superfluous, or swapped with its neighbour. A digit is never
        wrong: another number is another link or engine. The result is empty if no name or names of
        several quantities are that similar.
        """
        word = name.lower()
        if len(word) > _LONGEST:
            return ""
        if same := self._known.get(word):
            return same
        digits = re.findall(r"\d+", word)
        found: dict[object, str] = {}
        for slip in _slips(word):
            known = self._known.get(slip)
            if known is not None and re.findall(r"\d+", slip) == digits:
                found.setdefault(self._quantity(known), known)
        return next(iter(found.values())) if len(found) == 1 else ""

    def _quantity(self, name: str) -> object:
        """Return a key that is equal for names of the same quantity."""
        fields = tuple(field.name for field in called(name))
        return fields or self._ids.get(name, name)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {entry.name: entry.id for entry in dcgm_names()}

    @cached_property
    def _known(self) -> dict[str, str]:
        """All names of fields, groups and DCGM, by the name in lower case."""
        words = (*self._ids, *OF_DCGM_EXPORTER, *all_words())
        return {word.lower(): word for word in words}


def _advice(meant: str, shown: str) -> str:
    if reason := unavailable_reason(meant):
        return f"{shown} {reason.text}"
    return f"did you mean {shown}?" if meant else ""


def _slips(word: str) -> Iterator[str]:
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        if tail:
            yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in _LETTERS:
            yield head + letter + tail
            if tail:
                yield head + letter + tail[1:]
