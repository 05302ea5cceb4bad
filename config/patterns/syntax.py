"""Parses regular expressions in the syntax of Go's package regexp, for texts of one line."""

import re
import string
from typing import Final

from config.patterns.nodes import Edge, Either, Letter, Node, Repeated, Row

_DEEPEST: Final = 100
_MOST: Final = 1000
_ANY: Final = Letter(frozenset(), negated=True)
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACE: Final = frozenset("\t\n\f\r ")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_NAMED: Final = {
    "alnum": frozenset(string.ascii_letters) | _DIGITS,
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_EDGES: Final = {"A": "start", "z": "end", "b": "word", "B": "within"}
_COUNT: Final = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{0,4}))?\}")
_GROUP: Final = re.compile(r"\?(?:P?<[A-Za-z_][A-Za-z0-9_]*>|(?P<flags>[imsU-]*)(?P<end>[:)]))")
_CODE: Final = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")


class SyntaxFault(ValueError):  # noqa: N818 - a problem of the text, not of the program
    """The text is no regular expression.

    Attributes:
        reason: the problem, as text.
        at: index of the character at which it was found.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason, at)
        self.reason = reason
        self.at = at


def parsed(text: str) -> Node:
    """Return the syntax tree of a text.

    Raises:
        SyntaxFault: it is no regular expression, or uses features that only Python or Perl have.
    """
    reader = _Reader(text)
    node = reader.either(0)
    if reader.at < len(text):
        raise SyntaxFault("unmatched )", reader.at)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.at = 0
        self._text = text
        self._fold = False

    def either(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise SyntaxFault("nested too deeply", self.at)
        ways = [self._row(depth)]
        while self._take("|"):
            ways.append(self._row(depth))
        return ways[0] if len(ways) == 1 else Either(tuple(ways))

    def _row(self, depth: int) -> Node:
        items: list[Node] = []
        while self.at < len(self._text) and self._text[self.at] not in "|)":
            item = self._atom(depth)
            items.append(self._repeated(item))
        return Row(tuple(items))

    def _repeated(self, item: Node) -> Node:
        begin = self.at
        bounds = self._bounds()
        if bounds is None:
            return item
        self._take("?")  # non-greedy: the same texts match
        again = self.at
        if self._bounds() is not None:
            raise SyntaxFault(f"two repetitions in a row, {self._text[begin : self.at]}", again)
        return Repeated(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        count = _COUNT.match(self._text, self.at)
        if count is None:  # a brace without a count is a literal
            return None
        least = int(count[1])
        most = None if count[2] and not count[3] else int(count[3] or count[1])
        if max(least, most or 0) > _MOST or (most is not None and most < least):
            raise SyntaxFault(f"invalid repetition, {count[0]}", self.at)
        self.at = count.end()
        return least, most

    def _atom(self, depth: int) -> Node:
        begin = self.at
        letter = self._next()
        match letter:
            case "(":
                return self._group(begin, depth)
            case "[":
                return self._class(begin)
            case ".":
                return _ANY
            case "^":
                return Edge("start")
            case "$":
                return Edge("end")
            case "*" | "+" | "?":
                raise SyntaxFault(f"nothing to repeat before {letter}", begin)
            case "\\":
                return self._escape(begin)
            case _:
                return self._letters(frozenset(letter))

    def _group(self, begin: int, depth: int) -> Node:
        outside = self._fold
        if self._text.startswith("?", self.at):
            head = _GROUP.match(self._text, self.at)
            if head is None:
                raise SyntaxFault("unknown kind of group", begin)
            self.at = head.end()
            on, _, off = (head["flags"] or "").partition("-")
            self._fold = ("i" in on or self._fold) and "i" not in off
            if head["end"] == ")":  # flags for the rest of the enclosing group
                return Row(())
        inner = self.either(depth + 1)
        if not self._take(")"):
            raise SyntaxFault("unmatched (", begin)
        self._fold = outside
        return inner

    def _class(self, begin: int) -> Letter:
        negated = self._take("^")
        letters: set[str] = set()
        first = True
        while first or not self._text.startswith("]", self.at):
            if self.at >= len(self._text):
                raise SyntaxFault("unmatched [", begin)
            first = False
            letters |= self._members()
        self.at += 1
        return self._letters(frozenset(letters), negated)

    def _members(self) -> frozenset[str]:
        begin = self.at
        if self._text.startswith("[:", begin):
            end = self._text.find(":]", begin)
            name = self._text[begin + 2 : end]
            if end < 0 or name.removeprefix("^") not in _NAMED:
                raise SyntaxFault("unknown character class", begin)
            self.at = end + 2
            return self._whole(Letter(_NAMED[name.removeprefix("^")], name.startswith("^")))
        low = self._member()
        if len(low) > 1 or not self._text.startswith("-", self.at):
            return low
        if self._text.startswith("-]", self.at):
            return low
        self.at += 1
        high = self._member()
        (least,), most = low, max(high)
        if len(high) > 1 or most < least:
            raise SyntaxFault(f"invalid range, {self._text[begin : self.at]}", begin)
        return frozenset(map(chr, range(ord(least), ord(most) + 1)))

    def _member(self) -> frozenset[str]:
        begin = self.at
        letter = self._next()
        if letter != "\\":
            return frozenset(letter)
        found = self._escape(begin)
        if not isinstance(found, Letter):
            raise SyntaxFault("an escape that is no character", begin)
        return self._whole(found)

    def _escape(self, begin: int) -> Letter | Edge:
        if code := _CODE.match(self._text, self.at):
            self.at = code.end()
            number = int(code[1] or code[2], 16)
            if number > 0x10FFFF:
                raise SyntaxFault("no character has this number", begin)
            return self._letters(frozenset(chr(number)))
        letter = self._next()
        if letter in _EDGES:
            return Edge(_EDGES[letter])
        if letter.lower() in _CLASSES:
            return Letter(_CLASSES[letter.lower()], letter.isupper())
        if letter in _CONTROLS:
            return Letter(frozenset(_CONTROLS[letter]))
        if letter.isalnum() or not letter.isascii():
            raise SyntaxFault(f"unknown escape, \\{letter}", begin)
        return Letter(frozenset(letter))

    def _letters(self, letters: frozenset[str], negated: bool = False) -> Letter:
        if self._fold:
            letters = letters.union(*((each.lower(), each.upper()) for each in letters))
        return Letter(letters, negated)

    @staticmethod
    def _whole(found: Letter) -> frozenset[str]:
        """Return the characters as a set; a negated class is limited to ASCII."""
        if not found.negated:
            return found.letters
        return frozenset(map(chr, range(128))) - found.letters

    def _next(self) -> str:
        if self.at >= len(self._text):
            raise SyntaxFault("the pattern is incomplete", self.at)
        self.at += 1
        return self._text[self.at - 1]

    def _take(self, letter: str) -> bool:
        taken = self._text.startswith(letter, self.at)
        self.at += taken
        return taken
