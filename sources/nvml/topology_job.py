"""The topology of the GPUs as it was read, and the job that reads it.

The place of a GPU, its NUMA node and the PCIe bridges above it, comes from sysfs. The folder of a
PCI device is below the folder of the bridge to which it is connected, up to the root complex:
`/sys/devices/pci0000:64/0000:64:01.0/0000:65:00.0`.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final, TypeVar

from pipeline.model import Device, Level, TopologyCard, TopologyPair, TopologyRead
from sources.nvml import codes, nvlink, readers
from sources.nvml.gpu import Gpu
from sources.nvml.library import Library
from sources.nvml.nvlink import Links
from sources.nvml.worker_pool import Job, Step, Steps

T = TypeVar("T")

SYSFS: Final = Path("/sys")

_BUS_ID: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_ROOT_COMPLEX: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class _Pair:
    level: Level | None = None
    reachable: bool | None = None


class TopologyReadings:
    """What was read about each GPU and each pair of GPUs; outlives the runs of the source.

    The data of a GPU is kept while it is down, since its place does not change. What was not read,
    or what the driver does not report, is unknown.

    Attributes:
        active_calls: pairs for which a call runs now, by uuid of the first GPU. An entry remains
            until its call returns.
        hung: pairs for which a call exceeded the deadline: not read again until one of the two
            GPUs is opened again.
    """

    def __init__(self) -> None:
        self.active_calls: dict[str, tuple[Gpu, Gpu]] = {}
        self.hung: set[tuple[Gpu, Gpu]] = set()
        self.cards: dict[str, TopologyCard] = {}
        self.links: dict[str, Links | None] = {}
        self.pairs: dict[frozenset[str], _Pair] = {}

    def card(self, device: Device) -> TopologyCard:
        """Return what is known about a GPU."""
        unknown = TopologyCard(device.uuid, None, "", None, (), None)
        known = self.cards.get(device.uuid, unknown)
        return replace(known, index=device.index, pci_bus_id=device.pci_bus_id)

    def retain(self, uuids: Collection[str], gpus: Collection[Gpu]) -> None:
        """Forget all other GPUs.

        Args:
            uuids: the GPUs that the driver enumerates.
            gpus: the open ones of them.
        """
        for uuid in self.cards.keys() - set(uuids):
            del self.cards[uuid], self.links[uuid]
        self.pairs = {key: pair for key, pair in self.pairs.items() if key <= set(uuids)}
        self.hung = {pair for pair in self.hung if pair[0] in gpus and pair[1] in gpus}

    def read(self, devices: Iterable[Device]) -> TopologyRead:
        """Return the topology of some GPUs.

        Args:
            devices: the physical GPUs.
        """
        found = sorted(devices, key=lambda device: device.order)
        return TopologyRead(
            tuple([self.card(device) for device in found]),
            tuple([self._pair_of(one, other) for one, other in combinations(found, 2)]),
        )

    def _pair_of(self, one: Device, other: Device) -> TopologyPair:
        pair = self.pairs.get(frozenset((one.uuid, other.uuid)), _Pair())
        a, b = ((device.pci_bus_id, self.links.get(device.uuid)) for device in (one, other))
        nvlinks = nvlink.nvlink_count(a, b, pair.reachable)
        return TopologyPair(one.uuid, other.uuid, pair.level, nvlinks, pair.reachable)


class TopologySurvey(Job[None]):
    """Read the topology: all of it for unread GPUs, and what may change for every GPU.

    Args:
        nvml: the library.
        topology: stores the results.
        gpus: all open GPUs.
        unread: those whose place, links and memory are read.
        sysfs_root: where sysfs is mounted.

    Attributes:
        errors: calls that failed: a GPU's uuid, and NVML's code.
        changed: uuids of GPUs whose links may have changed since they were read.
    """

    def __init__(
        self,
        nvml: Library,
        topology: TopologyReadings,
        gpus: Collection[Gpu],
        unread: Collection[Gpu],
        sysfs_root: Path,
    ) -> None:
        self.errors: list[tuple[str, int]] = []
        self.changed: set[str] = set()
        self._nvml = nvml
        self._readings = topology
        self._gpus = tuple(gpus)
        self._unread = frozenset(unread)
        self._sysfs = sysfs_root
        super().__init__(self._make_steps())

    def _make_steps(self) -> Steps:
        readings = self._readings
        for gpu in self._gpus:
            card = yield Step(gpu.uuid, partial(self._query, gpu, self._card))
            if card is not None:
                readings.cards[gpu.uuid], readings.links[gpu.uuid] = card
        # Each pair is read once, in the step of its first GPU.
        for place, gpu in enumerate(self._gpus[:-1], 1):
            found = yield Step(gpu.uuid, partial(self._read_pairs, gpu, self._gpus[place:]))
            for other, pair in found or ():
                before = self._pair_before(gpu, other)
                if before.reachable is not None and pair.reachable != before.reachable:
                    self.changed |= {gpu.uuid, other.uuid}
                readings.pairs[frozenset((gpu.uuid, other.uuid))] = pair

    def _query(self, gpu: Gpu, query: Callable[[Gpu], T]) -> T | None:
        """Query a GPU, unless it is down or a call with it hangs."""
        if not gpu.is_idle or gpu in self._gpus_in_calls():
            return None
        try:
            with gpu.visit():
                return query(gpu)
        except codes.DeviceLostError as lost:
            self.errors.append((gpu.uuid, lost.code))
            return None

    def _gpus_in_calls(self) -> set[Gpu]:
        """Return the GPUs with a call that runs, which must be on an abandoned thread."""
        return {gpu for pair in tuple(self._readings.active_calls.values()) for gpu in pair}

    def _card(self, gpu: Gpu) -> tuple[TopologyCard, Links | None]:
        nvml, readings, uuid = self._nvml, self._readings, gpu.uuid
        known, links = readings.card(gpu.device), readings.links.get(uuid)
        cluster, clique = nvlink.read_fabric(nvml, gpu.handle)
        if gpu in self._unread:
            bus_id = known.pci_bus_id
            links = nvlink.read_links(nvml, gpu.handle)
            known = replace(
                known,
                numa_node=numa_node(bus_id, self._sysfs),
                pcie_path=pcie_path(bus_id, self._sysfs),
                links=None if links is None else links.active,
                memory_bytes=readers.memory_total(nvml, gpu.handle),
            )
        elif (cluster, clique) != (known.cluster, known.clique):
            self.changed.add(uuid)
        return replace(known, cluster=cluster, clique=clique), links

    def _read_pairs(self, gpu: Gpu, others: Iterable[Gpu]) -> list[tuple[Gpu, _Pair]]:
        found: list[tuple[Gpu, _Pair]] = []
        for other in others:
            # A call with a GPU that is down or hangs may hang too, and count against this GPU.
            if not other.is_idle or other in self._gpus_in_calls():
                continue
            if (gpu, other) in self._readings.hung:
                continue
            pair = self._query(gpu, partial(self._pair, other))
            if pair is None:
                break
            found.append((other, pair))
        return found

    def _pair(self, other: Gpu, gpu: Gpu) -> _Pair:
        nvml, before = self._nvml, self._pair_before(gpu, other)
        self._readings.active_calls[gpu.uuid] = (gpu, other)
        try:
            level = nvlink.read_level(nvml, gpu.handle, other.handle)
            reachable = nvlink.read_reachable(nvml, gpu.handle, other.handle)
        finally:
            del self._readings.active_calls[gpu.uuid]
        return _Pair(
            self._answer_or_previous(gpu, level, before.level),
            self._answer_or_previous(gpu, reachable, before.reachable),
        )

    def _answer_or_previous(
        self, gpu: Gpu, answer: tuple[int, T | None], before: T | None
    ) -> T | None:
        """Return the value of an answer; if the call failed, the previous value."""
        code, value = answer
        codes.check_driver(code)
        if code == codes.OK or code in codes.NO_READING:
            return value
        # Either GPU may be lost; other calls report which.
        if code not in codes.LOST:
            self.errors.append((gpu.uuid, code))
        return None if code == codes.OUT_OF_RANGE else before

    def _pair_before(self, one: Gpu, other: Gpu) -> _Pair:
        return self._readings.pairs.get(frozenset((one.uuid, other.uuid)), _Pair())


def folder(pci_bus_id: str, root: Path) -> Path | None:
    """Return the folder of a PCI device; None if the text is not a bus id.

    Args:
        pci_bus_id: as NVML writes it, with a domain of eight digits in upper case.
        root: where sysfs is mounted.
    """
    found = _BUS_ID.fullmatch(pci_bus_id.lower())
    if found is None:
        return None
    domain, place, function = found.groups()
    return root / "bus/pci/devices" / f"{int(domain, 16):04x}:{place}.{function}"


def numa_node(pci_bus_id: str, root: Path) -> int | None:
    """Return the NUMA node of a PCI device.

    Returns:
        None if the kernel does not know it, which it writes as -1, for example on a machine with
        one node whose firmware does not report it.
    """
    path = folder(pci_bus_id, root)
    if path is None:
        return None
    try:
        number = int((path / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def pcie_path(pci_bus_id: str, root: Path) -> tuple[str, ...]:
    """Return the PCIe path of a device: its root complex, then the bridges down to it.

    Returns:
        For example `("pci0000:64", "0000:64:01.0")`; empty if unknown. It contains the root complex
        even without a bridge, so that a device directly on a root complex differs from an unknown
        one.
    """
    path = folder(pci_bus_id, root)
    if path is None:
        return ()
    try:
        parts = path.resolve(strict=True).parts
    except (OSError, RuntimeError):  # RuntimeError: symbolic links form a loop
        return ()
    # Other folders, such as a hypervisor's virtual bus, may be above the root complex.
    index = next((index for index, part in enumerate(parts) if _ROOT_COMPLEX.fullmatch(part)), None)
    return () if index is None else parts[index:-1]
