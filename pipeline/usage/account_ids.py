"""Ids of accounts, of the containers in them and of holdings."""

from itertools import count


class Ids:
    """Generates unique ids for accounts, containers and holdings.

    Args:
        run: identifies this run of podgpu among all runs that write to the same ledger.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._numbers = count(1)

    def __call__(self) -> str:
        """Return the next id."""
        return f"{self._run}-{next(self._numbers)}"
