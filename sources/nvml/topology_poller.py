"""Reads the topology when it is due, and emits it when it changes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pipeline.component.contracts import SourceContext
from pipeline.model import TopologyCard, TopologyRead
from sources.nvml import codes, composite_readers, nvlink
from sources.nvml.inventory import Inventory
from sources.nvml.nvlink import Links
from sources.nvml.open_gpu import OpenGpu
from sources.nvml.restart_state import NvmlState
from sources.nvml.topology_readings import Pair, numa_node, pcie_path
from sources.nvml.worker_pool import Job, Step, Steps

T = TypeVar("T")

POLL_FACTOR: Final = 2000
"""The pause after a survey, as a multiple of its duration: a survey of microseconds runs in every
slow round, a survey of 60 ms every two minutes."""


class TopologyPoller:
    """Reads and emits the topology after a round, if required.

    All data is read of a GPU that was opened or responds again, and of GPUs for which a change was
    noticed. Slow rounds read what may change: reachability over NVLink, and the fabric.

    Args:
        ctx: the source's context.
        state: the state from earlier runs.
        inventory: the GPUs.
        root: where sysfs is mounted.
    """

    def __init__(
        self,
        ctx: SourceContext,
        state: NvmlState,
        inventory: Inventory,
        root: Path,
    ) -> None:
        self._ctx = ctx
        self._state = state
        self._readings = state.topology
        self._inventory = inventory
        self._root = root
        self._read: dict[str, OpenGpu] = {}
        self._emitted: TopologyRead | None = None
        self._due_ns = 0

    async def after_round(self, *, slow: bool) -> None:
        """Read the topology if required, and emit it if it changed.

        Raises:
            TransientError: NVML cannot be used now.
        """
        gpus = self._inventory.gpus.values()
        stuck = self._state.workers.stuck
        self._read = {gpu.uuid: gpu for gpu in gpus if gpu.up and self._read.get(gpu.uuid) is gpu}
        unread = [gpu for gpu in gpus if gpu.up and gpu.uuid not in {*self._read, *stuck}]
        is_due = slow and self._ctx.clock.now().mono_ns >= self._due_ns
        if is_due:
            # GPUs whose first read hung or failed.
            missing = [gpu for gpu in gpus if gpu.uuid not in {*self._readings.cards, *stuck}]
            unread = list({*unread, *(gpu for gpu in missing if gpu.up)})
        if unread or is_due:
            await self._run_survey(list(gpus), unread)
        await self._emit()

    async def _run_survey(self, gpus: list[OpenGpu], unread: list[OpenGpu]) -> None:
        self._read.update((gpu.uuid, gpu) for gpu in unread)
        survey: Job[object] = Job(self._steps(gpus, unread))
        try:
            await self._state.workers.run(survey)
        finally:
            self._readings.hung.update(tuple(self._readings.active_calls.values()))
        if survey.started is not None and survey.ended is not None:
            duration_ns = survey.ended.mono_ns - survey.started.mono_ns
            # A survey with unread GPUs takes longer than later ones, so the pause after it is not
            # yet known. After a survey in which a call hung, always pause.
            repeat_soon = unread and not self._state.workers.stuck
            self._due_ns = survey.ended.mono_ns + (0 if repeat_soon else POLL_FACTOR * duration_ns)

    async def _emit(self) -> None:
        """Emit the topology of responding GPUs: no scheduler may allocate the others."""
        state = self._state
        devices = [found[0] for found in self._inventory.by_index.values()]
        self._readings.retain({d.uuid for d in devices}, set(self._inventory.gpus.values()))
        not_responding = state.down | state.workers.stuck
        topology = self._readings.read(
            device for device in devices if device.uuid not in not_responding
        )
        if topology != self._emitted:
            self._emitted = topology
            await self._ctx.emit(topology)

    def _steps(self, gpus: Sequence[OpenGpu], unread: Collection[OpenGpu]) -> Steps:
        """Yield the steps that read all of unread GPUs, and what may change of every GPU."""
        readings = self._readings
        for gpu in gpus:
            read_card = partial(self._read_card, gpu, is_unread=gpu in unread)
            if (found := (yield Step(gpu.uuid, partial(self._query, gpu, read_card)))) is None:
                continue
            card, links = found
            known = readings.card(gpu.device)
            if gpu not in unread and (card.cluster, card.clique) != (known.cluster, known.clique):
                self._read.pop(gpu.uuid, None)  # its links may have changed
            readings.cards[gpu.uuid], readings.links[gpu.uuid] = card, links
        # Each pair is read once, in the step of its first GPU.
        for place, gpu in enumerate(gpus[:-1], 1):
            pairs = yield Step(gpu.uuid, partial(self._read_pairs, gpu, gpus[place:]))
            for other, pair in pairs or ():
                before = readings.pair(gpu.uuid, other.uuid).reachable
                if before is not None and pair.reachable != before:
                    self._read.pop(gpu.uuid, None)
                    self._read.pop(other.uuid, None)
                readings.pairs[frozenset((gpu.uuid, other.uuid))] = pair

    def _query(self, gpu: OpenGpu, query: Callable[[], T]) -> T | None:
        """Query a GPU; None if it is down, is lost, or a call for it runs."""
        if not gpu.is_free_to_call or gpu in self._gpus_in_calls():
            return None
        try:
            with gpu.visit():
                return query()
        except codes.DeviceLostError as lost:
            self._inventory.errors.append((gpu.uuid, lost.code))
            return None

    def _gpus_in_calls(self) -> set[OpenGpu]:
        """Return the GPUs with a running call; such a call must be on an abandoned thread."""
        return {gpu for pair in tuple(self._readings.active_calls.values()) for gpu in pair}

    def _read_card(self, gpu: OpenGpu, *, is_unread: bool) -> tuple[TopologyCard, Links | None]:
        nvml, readings = self._state.nvml, self._readings
        card, links = readings.card(gpu.device), readings.links.get(gpu.uuid)
        cluster, clique = nvlink.read_fabric(nvml, gpu.handle)
        if is_unread:
            links = nvlink.read_links(nvml, gpu.handle)
            card = replace(
                card,
                numa_node=numa_node(card.pci_bus_id, self._root),
                pcie_path=pcie_path(card.pci_bus_id, self._root),
                links=None if links is None else links.active,
                memory_bytes=composite_readers.memory_total(nvml, gpu.handle),
            )
        return replace(card, cluster=cluster, clique=clique), links

    def _read_pairs(self, gpu: OpenGpu, others: Iterable[OpenGpu]) -> list[tuple[OpenGpu, Pair]]:
        found: list[tuple[OpenGpu, Pair]] = []
        for other in others:
            # A call with a GPU that is down or hangs may hang too, and count against this GPU.
            if not other.is_free_to_call or other in self._gpus_in_calls():
                continue
            if (gpu, other) in self._readings.hung:
                continue
            pair = self._query(gpu, partial(self._read_pair, gpu, other))
            if pair is None:
                break
            found.append((other, pair))
        return found

    def _read_pair(self, gpu: OpenGpu, other: OpenGpu) -> Pair:
        nvml, before = self._state.nvml, self._readings.pair(gpu.uuid, other.uuid)
        self._readings.active_calls[gpu.uuid] = (gpu, other)
        try:
            level = nvlink.read_level(nvml, gpu.handle, other.handle)
            reachable = nvlink.read_reachable(nvml, gpu.handle, other.handle)
        finally:
            del self._readings.active_calls[gpu.uuid]
        return Pair(
            self._answer_or_previous(gpu, level, before.level),
            self._answer_or_previous(gpu, reachable, before.reachable),
        )

    def _answer_or_previous(
        self, gpu: OpenGpu, answer: tuple[int, T | None], before: T | None
    ) -> T | None:
        """Return the value of a response; if the call failed, the previous value.

        None if the driver reports no value or an impossible one.
        """
        code, value = answer
        codes.check_driver(code)
        if code == codes.OK or code in codes.NO_READING:
            return value
        # Either GPU may be lost; other calls report which.
        if code not in codes.LOST:
            self._inventory.errors.append((gpu.uuid, code))
        return None if code == codes.OUT_OF_RANGE else before
