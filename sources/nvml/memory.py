"""What the source knows from one run to the next."""

from collections.abc import Iterable, Mapping

from pipeline.model import Device
from sources.nvml.xids import XidCounts


class Memory:
    """Outlives the runs of its source.

    Attributes:
        gpus: every physical GPU that was ever enumerated, by uuid: one that is gone is down.
        by_index: devices by index as they were last announced.
        down: uuids of GPUs that were last seen down.
        xids: the XID errors.
    """

    def __init__(self, xid_codes: Iterable[int]) -> None:
        self.gpus: dict[str, Device] = {}
        self.by_index: dict[int, tuple[Device, ...]] = {}
        self.down: set[str] = set()
        self.xids = XidCounts(xid_codes)
        self._said: set[tuple[str, str]] = set()

    def note(self, by_index: Mapping[int, tuple[Device, ...]]) -> None:
        """Remember the devices as they are now."""
        self.by_index = dict(by_index)
        for devices in by_index.values():
            self.gpus[devices[0].uuid] = devices[0]

    def first_time(self, what: str, about: str) -> bool:
        """Whether this is said for the first time."""
        known = (what, about) in self._said
        self._said.add((what, about))
        return not known

    def describe(self, place: str) -> str:
        """Name a GPU by index and uuid; anything else by what it is."""
        gpu = self.gpus.get(place)
        return place if gpu is None else f"GPU {gpu.index} ({place})"
