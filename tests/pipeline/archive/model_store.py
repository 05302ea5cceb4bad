"""A store in memory whose operations can fail, lose their answer, or take effect again later.

Each operation consists of steps. Between two steps, other actors of a test can do theirs: `pause`
is called before and after each effect. Pages of a list are two keys long.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pipeline.archive.object_contents import Contents, contents_of_raw
from pipeline.archive.object_key import CLUSTERS, RawKey, parse
from pipeline.base.errors import TransientError


class Fault(Enum):
    """What happens to an operation."""

    NONE = "none"
    REFUSED = "fails without an effect"
    ANSWER_LOST = "takes effect, and fails"
    REPEATED = "takes effect now, and again later"
    DELAYED = "fails, and takes effect later"


@dataclass
class Model:
    """The state of the store, and how operations go.

    Attributes:
        objects: contents by key.
        in_order: whether lists are sorted pages, as those of S3; otherwise each folder is read at
            once, in any order.
        fault: decides what happens to an operation.
        pause: is called between steps. It can end an actor by raising an exception.
        changed: is called after each change.
        later: effects that come later.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    in_order: bool = True
    fault: Callable[[], Fault] = lambda: Fault.NONE
    pause: Callable[[], None] = lambda: None
    changed: Callable[[], None] = lambda: None
    later: list[Callable[[], None]] = field(default_factory=list)
    location: str = "model"

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a folder."""
        self._act(lambda: None, "list")
        if self.in_order:
            last = ""
            while page := sorted(
                k for k in self.objects if k.startswith(prefix + "/") and k > last
            )[:2]:
                yield from page
                last = page[-1]
                self.pause()
            return
        folders = {key.rpartition("/")[0] for key in self.objects if key.startswith(prefix + "/")}
        for folder in sorted(folders, reverse=True):
            found = [key for key in self.objects if key.rpartition("/")[0] == folder]
            yield from reversed(found)
            self.pause()

    def get(self, keys: Sequence[str], folder: Path) -> dict[str, Path]:
        """Copy objects to files."""
        found = {}
        for number, key in enumerate(keys):
            self._act(lambda: None, f"read {key}")
            if key in self.objects:
                found[key] = folder / str(number)
                found[key].write_bytes(self.objects[key])
        return found

    def put(self, key: str, file: Path) -> None:
        """Write an object."""
        content = file.read_bytes()

        def effect() -> None:
            self.objects[key] = content
            self.changed()

        self._act(effect, f"write {key}")

    def exists(self, key: str) -> bool:
        """Return whether an object exists."""
        self._act(lambda: None, f"read {key}")
        return key in self.objects

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, one after the other."""
        for key in keys:

            def effect(key: str = key) -> None:
                self.objects.pop(key, None)
                self.changed()

            self._act(effect, f"delete {key}")

    def _act(self, effect: Callable[[], None], action: str) -> None:
        self.pause()
        fault = self.fault()
        if fault is not Fault.REFUSED and fault is not Fault.DELAYED:
            effect()
        if fault is Fault.REPEATED or fault is Fault.DELAYED:
            self.later.append(effect)
        self.pause()
        if fault not in (Fault.NONE, Fault.REPEATED):
            raise TransientError(f"cannot {action}")


class ModelFiles:
    """The `Merge` of files that list raw keys, one a line, instead of rows.

    The rows of a raw object follow from its key, so a set of raw keys is a set of rows.
    """

    def contents(self, files: Mapping[Path, str]) -> dict[str, Contents]:
        """Return the contents of objects by key."""
        return {key: contents_of_raw(path.read_text().split()) for path, key in files.items()}

    def combine(self, files: Mapping[Path, str], part: Path) -> None:
        """Write the keys of files to a new file."""
        part.write_text("\n".join(line for path in files for line in path.read_text().split()))

    def finish(
        self, parts: Sequence[Path], contents: Mapping[str, Contents], whole: Contents, target: Path
    ) -> None:
        """Write the keys of parts to a new file, each once."""
        keys = {line for part in parts for line in part.read_text().split()}
        assert keys == whole.replaces
        target.write_text("\n".join(sorted(keys)))


def rows_in(objects: Mapping[str, bytes]) -> frozenset[str]:
    """Return the raw keys whose rows the objects of a store have."""
    return frozenset(line for content in objects.values() for line in content.decode().split())


def is_raw(key: str) -> bool:
    """Return whether a key is that of a raw object."""
    return isinstance(parse(key), RawKey)


def is_compacted(key: str) -> bool:
    """Return whether a key is that of a compacted object."""
    return key.startswith(CLUSTERS)
