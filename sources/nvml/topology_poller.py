"""When it is read how the GPUs are joined, and when that is told."""

from pathlib import Path
from typing import Final

from pipeline.component.contracts import SourceContext
from pipeline.model import TopologyRead
from sources.nvml import pci_sysfs
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.state import NvmlState
from sources.nvml.topology_job import TopologySurvey

POLL_FACTOR: Final = 2000
"""A survey of what may change is followed by a pause so many times as long: what the driver answers
in microseconds is asked in every slow round, what takes it 60 ms every two minutes."""


class TopologyPoller:
    """Looks after each round whether there is something to ask or to tell.

    Everything is read of a GPU that was opened, or was down and answers again, and of GPUs of which
    something turned out to be otherwise than it was. Slow rounds ask again what may change: who
    reaches whom over NVLink, and the fabric.

    Args:
        ctx: the source's context.
        state: what there is from earlier runs.
        inventory: the GPUs.
        root: where sysfs is mounted.
    """

    def __init__(
        self,
        ctx: SourceContext,
        state: NvmlState,
        inventory: Inventory,
        root: Path = pci_sysfs.ROOT,
    ) -> None:
        self._ctx = ctx
        self._state = state
        self._inventory = inventory
        self._root = root
        self._read: dict[str, Gpu] = {}
        self._emitted: TopologyRead | None = None
        self._due_ns = 0

    async def after_round(self, *, slow: bool) -> None:
        """Ask and tell what there is to.

        Raises:
            TransientError: NVML can't be used now.
        """
        gpus = self._inventory.gpus.values()
        stuck = self._state.workers.stuck
        self._read = {gpu.uuid: gpu for gpu in gpus if gpu.up and self._read.get(gpu.uuid) is gpu}
        unread = [gpu for gpu in gpus if gpu.up and gpu.uuid not in {*self._read, *stuck}]
        again = slow and self._ctx.clock.now().mono_ns >= self._due_ns
        if again:
            # Those that hung, or failed, when it was tried first.
            lacking = [gpu for gpu in gpus if gpu.uuid not in {*self._state.topology.cards, *stuck}]
            unread = list({*unread, *(gpu for gpu in lacking if gpu.up)})
        if unread or again:
            await self._run_survey(list(gpus), unread)
        await self._emit()

    async def _run_survey(self, gpus: list[Gpu], unread: list[Gpu]) -> None:
        joints = self._state.topology
        self._read.update((gpu.uuid, gpu) for gpu in unread)
        survey = TopologySurvey(self._state.nvml, joints, gpus, unread, self._root)
        try:
            await self._state.workers.run(survey)
        finally:
            joints.hung.update(tuple(joints.asking.values()))
            self._inventory.errors += survey.errors
        for uuid in survey.changed:
            self._read.pop(uuid, None)
        if survey.started is not None and survey.ended is not None:
            spent_ns = survey.ended.mono_ns - survey.started.mono_ns
            # With links it took longer than it will again: how long, the next one shows. One in
            # which a call hung, though, is not to hang again soon.
            first = unread and not self._state.workers.stuck
            self._due_ns = survey.ended.mono_ns + (0 if first else POLL_FACTOR * spent_ns)

    async def _emit(self) -> None:
        """Tell of the GPUs that answer: one that doesn't is nothing to give to a pod."""
        kept = self._state
        devices = [found[0] for found in self._inventory.by_index.values()]
        kept.topology.retain({d.uuid for d in devices}, set(self._inventory.gpus.values()))
        silent = kept.history.down | kept.workers.stuck
        told = kept.topology.read(device for device in devices if device.uuid not in silent)
        if told != self._emitted:
            self._emitted = told
            await self._ctx.emit(told)
