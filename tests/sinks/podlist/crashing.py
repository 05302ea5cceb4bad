"""Write a pod list, and exit at each system call of the write in turn.

It is a program because it forks: `python -m tests.sinks.podlist.crashing FOLDER rename|inplace`.
For each exit, it prints the content that a reader finds then.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.files import atomic_replace
from pipeline.model import Attribution, Evidence, Holder, Instant, PartialRef
from sinks.podlist import file_keeper
from sinks.podlist.entry_encoder import entries_of
from sinks.podlist.file_keeper import PodListFile
from tests.support.nodes import gpu

_KILLED = 77


class DyingOs:
    """The module `os`; the process exits at one of its calls, and `pwrite` writes half before."""

    def __init__(self, last: int) -> None:
        self._left = last

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(name, found) if callable(found) else found

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            if self._left == 0:
                if name == "pwrite":
                    descriptor, data, offset = args
                    os.pwrite(descriptor, data[: len(data) // 2], offset)
                os._exit(_KILLED)
            self._left -= 1
            return call(*args, **more)

        return counted


def write(path: Path, pods: list[str], *, in_place: bool, last: int | None = None) -> None:
    if last is not None:
        vars(file_keeper)["os"] = vars(atomic_replace)["os"] = DyingOs(last)
    holders = tuple(
        Holder(PartialRef("ml", pod, "main"), None, Instant(0, 0), "k", Evidence.KUBELET_IDS)
        for pod in pods
    )
    keeper = PodListFile(path, in_place=in_place)
    keeper.open()
    keeper.update(
        entries_of([Attribution(gpu(0), present=True, holders=holders)], "uuid"), repair=True
    )


def main(folder: Path, way: str) -> None:
    path, in_place = folder / "podlist.json", way == "inplace"
    for old, new in ((["a"], ["b", "c"]), (["b", "c"], ["a"]), ([], ["a"]), (["a"], [])):
        last, status = 0, _KILLED
        while status == _KILLED:
            path.write_text('[{"theirs": 1}]')
            write(path, old, in_place=False)
            child = os.fork()
            if child == 0:
                write(path, new, in_place=in_place, last=last)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = path.read_text()
            write(path, new, in_place=in_place)
            print(
                json.dumps(
                    {
                        "old": old,
                        "new": new,
                        "status": status,
                        "found": found,
                        "repaired": path.read_text(),
                        "files": sorted(file.name for file in folder.iterdir()),
                    }
                )
            )
            last += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
