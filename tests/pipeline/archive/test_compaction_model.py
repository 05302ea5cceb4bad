"""No order of operations, faults, kills and compactions loses a row or counts it twice."""

from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.archive.compaction import compact
from pipeline.archive.object_key import RawKey
from pipeline.archive.object_selection import fetch_with
from pipeline.base.errors import TransientError
from tests.pipeline.archive.actors import Actors
from tests.pipeline.archive.model_store import (
    Fault,
    Model,
    ModelFiles,
    is_compacted,
    is_raw,
    rows_in,
)

DAYS = (date(2026, 11, 28), date(2026, 11, 29))


def key_of(number: int) -> str:
    """Return the key of the raw object with this number. It has three rows."""
    first = number * 3 + 1
    ledger = f"{number % 2:016x}"
    return str(
        RawKey("prod", f"node-{number % 2}", DAYS[number % 3 % 2], ledger, first, first + 2, ledger)
    )


class Story:
    """Nodes, compactions and readers that use one store, in an order that a script decides.

    Args:
        script: numbers that decide what happens next; after its end, there are no faults.
        folder: for temporary files.
    """

    def __init__(self, script: list[int], folder: Path, *, in_order: bool) -> None:
        self._script = iter(script)
        self._left = len(script)
        self._folder = folder
        self.actors = Actors()
        self.store = Model(
            in_order=in_order, fault=self._fault, pause=self.actors.pause, changed=self.check
        )
        self.put: set[str] = set()
        """Raw keys whose rows were in the store at some time."""
        self.acknowledged: set[str] = set()
        """Raw keys that their node knows to be in the store."""

    def number(self) -> int:
        """Return the next number of the script; 0 after its end."""
        self._left -= 1
        return next(self._script, 0)

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    def check(self) -> None:
        """Check that the store has all rows that it ever had. Called after each change."""
        rows = rows_in(self.store.objects)
        assert self.put <= rows, f"lost: {sorted(self.put - rows)}"
        self.put |= rows

    def node(self, numbers: list[int]) -> None:
        """Write objects, each until the node knows that it is there."""
        for number in numbers:
            key = key_of(number)
            file = self._folder / f"raw-{number}"
            file.write_text(key)
            while key not in self.acknowledged:
                try:
                    self.store.put(key, file)
                except TransientError:
                    continue
                self.acknowledged.add(key)

    def compaction(self) -> None:
        """Compact. It ends if the store fails."""
        with suppress(TransientError):
            self.compact()

    def compact(self) -> None:
        compact(self.store, ModelFiles(), self._folder, closed=lambda _: True)

    def reader(self) -> None:
        """Read all rows. Those that were acknowledged before must be there, each once."""
        before = set(self.acknowledged)
        try:
            rows = self.read()
        except TransientError:
            return
        assert before <= set(rows), f"not seen: {sorted(before - set(rows))}"

    def read(self) -> list[str]:
        """Return the raw keys whose rows a reader counts."""
        with TemporaryDirectory(dir=self._folder) as folder:
            found = fetch_with(ModelFiles().contents, self.store, Path(folder))
            alone = [path for path in found.files if path not in found.overlaps]
            # Rows that are in several files are counted once, because a reader compares serials.
            shared = {line for path in found.overlaps for line in path.read_text().split()}
            rows = [line for path in alone for line in path.read_text().split()]
        assert len(rows) == len(set(rows))
        assert not shared & set(rows)
        return [*rows, *shared]

    def _fault(self) -> Fault:
        return (
            list(Fault)[min(self.number() % 16, 15) % 5] if self.number() % 4 == 1 else Fault.NONE
        )

    def play(self) -> None:
        """Run the script; then let everything end, and compact until nothing changes."""
        new: list[Callable[[], None]] = [self.compaction, self.reader, self.compaction]
        self.actors.start(lambda: self.node([0, 2, 4, 6, 8]))
        self.actors.start(lambda: self.node([1, 3, 5, 7]))
        while not self.is_over or self.actors.active:
            choice = self.number()
            if self.store.later and (choice % 5 == 4 or self.is_over):
                self.store.later.pop(choice % len(self.store.later))()
            elif len(self.actors.active) < 5 and choice % 5 == 3:
                self.actors.start(new[choice % 3])
            elif self.actors.active:
                index = choice % len(self.actors.active)
                # A node that is killed starts again with the same objects, so only others are.
                kill = choice % 11 == 10 and index > 1
                self.actors.step(index, kill=kill)
        while self.store.later:
            self.store.later.pop()()


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [True, False], ids=["pages in order", "folders"])
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 600))
def test_rows_are_neither_lost_nor_counted_twice(seed: int, length: int, *, in_order: bool) -> None:
    random = Random(seed)
    script = [random.randrange(1 << 20) for _ in range(length)]
    with TemporaryDirectory() as folder:
        story = Story(script, Path(folder), in_order=in_order)
        story.play()
        everything = sorted(key_of(number) for number in range(9))
        assert sorted(story.read()) == everything
        story.compact()
        assert sorted(story.read()) == everything
        assert not [key for key in story.store.objects if is_raw(key)]
        assert len([key for key in story.store.objects if is_compacted(key)]) == 2
