"""Another client that changes the same Node continuously."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from tests.e2e.kube.api import STRATEGIC, Api, ApiError, path

_EVERY = 0.05
_KEYS = 20


class Neighbour:
    """Changes a Node's annotations, labels and conditions, and replaces the whole Node.

    Attributes:
        writes: number of writes by kind.
        conflicts: number of replacements that failed because the Node had changed.
    """

    def __init__(self, api: Api, node: str) -> None:
        self.writes: Counter[str] = Counter()
        self.conflicts = 0
        self._api = api
        self._node = node
        self._annotations: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._end = threading.Event()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._working = self._thread.submit(self._work)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.shutdown()
        if kind is None:
            self._working.result()

    def lost(self) -> dict[str, str]:
        """Return the written annotations and labels that the Node no longer has."""
        meta = self._api.get("Node", self._node)["metadata"]
        pairs = [*self._annotations.items(), *self._labels.items()]
        there = {**meta["annotations"], **meta["labels"]}
        return {key: value for key, value in pairs if there.get(key) != value}

    def remove(self) -> None:
        """Remove everything that was written."""
        changes = {
            "annotations": dict.fromkeys(self._annotations),
            "labels": dict.fromkeys(self._labels),
        }
        self._api.patch("Node", self._node, {"metadata": changes})

    def _work(self) -> None:
        number = 0
        while not self._end.wait(_EVERY):
            number += 1
            (self._annotate, self._label, self._report, self._put)[number % 4](number)

    def _annotate(self, number: int) -> None:
        key = f"neighbour.test/annotation-{number % _KEYS}"
        changes = {"metadata": {"annotations": {key: str(number)}}}
        self._api.patch("Node", self._node, changes)
        self._annotations[key] = str(number)
        self.writes["annotation"] += 1

    def _label(self, number: int) -> None:
        key = f"neighbour.test/label-{number % _KEYS}"
        self._api.patch("Node", self._node, {"metadata": {"labels": {key: str(number)}}})
        self._labels[key] = str(number)
        self.writes["label"] += 1

    def _report(self, number: int) -> None:
        report = {"type": "Neighbourly", "status": "True", "message": str(number)}
        self._api.request(
            "PATCH",
            path("Node", None, self._node, "status"),
            {"status": {"conditions": [report]}},
            STRATEGIC,
        )
        self.writes["status"] += 1

    def _put(self, number: int) -> None:
        whole = self._api.get("Node", self._node)
        key = f"neighbour.test/put-{number % _KEYS}"
        whole["metadata"]["annotations"][key] = str(number)
        try:
            self._api.request("PUT", path("Node", None, self._node), whole)
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            self.conflicts += 1
            return
        self._annotations[key] = str(number)
        self.writes["put"] += 1
