"""Classes of connected cards: cards that are joined directly or through others are in one class."""

from collections.abc import Iterable


class Classes:
    """Transitive closure of the joins made so far, over the numbers from 0 to `count` - 1."""

    def __init__(self, count: int) -> None:
        self._leader = list(range(count))
        self._mask = [1 << number for number in range(count)]

    def join(self, i: int, j: int) -> None:
        """Merge the classes of the two numbers."""
        a, b = sorted((self._find(i), self._find(j)))
        if a != b:
            self._leader[b] = a
            self._mask[a] |= self._mask[b]

    def mask(self, number: int) -> int:
        """Return the class of a number."""
        return self._mask[self._find(number)]

    def masks(self) -> list[int]:
        """Return all classes, sorted by their lowest number."""
        return [self._mask[n] for n, leader in enumerate(self._leader) if n == leader]

    def _find(self, number: int) -> int:
        leader = self._leader
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number


def classes(count: int, joined: Iterable[tuple[int, int]]) -> list[int]:
    """Return the classes that these joins make, sorted by their lowest number."""
    result = Classes(count)
    for i, j in joined:
        result.join(i, j)
    return result.masks()
