"""Matches a text with a regular expression by following all alternatives at the same time."""

from typing import Final

from config.patterns.nodes import Edge, Either, Letter, Node, Repeated, Row

LARGEST: Final = 1000
"""The most steps of a program, and so the most steps per character of a text."""

_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

# A step matches a character, checks the position, continues at other steps (a fork), or is the end
# (an empty fork). The first two continue at the following step of the list.
_Fork = list[int]
_Step = Letter | Edge | _Fork


class TooLargeError(ValueError):
    """The program would have more than `LARGEST` steps."""


class Program:
    """A compiled regular expression: a list of steps.

    Raises:
        TooLargeError: it would have too many steps.
    """

    def __init__(self, root: Node) -> None:
        self._steps: list[_Step] = []
        self._add(root)
        self._append([])

    def found(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text."""
        waiting: set[int] = set()
        for at in range(len(text) + 1):
            # A match may start at any character.
            if self._reach(0, at, text, waiting):
                return True
            if at == len(text):
                break
            current, waiting = waiting, set()
            for place in current:
                step = self._steps[place]
                if (
                    isinstance(step, Letter)
                    and step.fits(text[at])
                    and self._reach(place + 1, at + 1, text, waiting)
                ):
                    return True
        return False

    def _reach(self, place: int, at: int, text: str, waiting: set[int]) -> bool:
        """Add all steps that are reachable without a character; return whether the end is."""
        open_ = [place]
        while open_:
            place = open_.pop()
            if place in waiting:
                continue
            waiting.add(place)
            step = self._steps[place]
            if isinstance(step, list):
                if not step:
                    return True
                open_ += step
            elif isinstance(step, Edge) and _holds(step.kind, at, text):
                open_.append(place + 1)
        return False

    def _append(self, step: _Step) -> None:
        if len(self._steps) >= LARGEST:
            raise TooLargeError
        self._steps.append(step)

    def _add(self, node: Node) -> None:
        match node:
            case Letter() | Edge():
                self._append(node)
            case Row():
                for item in node.items:
                    self._add(item)
            case Either():
                self._either(node)
            case Repeated():
                self._repeated(node)

    def _either(self, node: Either) -> None:
        fork: _Fork = []
        self._append(fork)
        ends: list[_Fork] = []
        for way in node.ways:
            fork.append(len(self._steps))
            self._add(way)
            ends.append([])
            self._append(ends[-1])
        for end in ends:
            end.append(len(self._steps))

    def _repeated(self, node: Repeated) -> None:
        for _ in range(node.least):
            self._add(node.inner)
        if node.most is None:
            fork: _Fork = [len(self._steps) + 1]
            begin = len(self._steps)
            self._append(fork)
            self._add(node.inner)
            self._append([begin])
            fork.append(len(self._steps))
            return
        forks: list[_Fork] = []
        for _ in range(node.most - node.least):
            forks.append([len(self._steps) + 1])
            self._append(forks[-1])
            self._add(node.inner)
        for fork in forks:
            fork.append(len(self._steps))


def _holds(kind: str, at: int, text: str) -> bool:
    if kind == "start":
        return at == 0
    if kind == "end":
        return at == len(text)
    before = at > 0 and text[at - 1] in _WORD
    after = at < len(text) and text[at] in _WORD
    return (before != after) is (kind == "word")
