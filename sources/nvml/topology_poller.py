"""Schedules reading the topology, and emits it when it changes."""

from pathlib import Path
from typing import Final

from pipeline.component.contracts import SourceContext
from pipeline.model import TopologyRead
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.restart_state import NvmlState
from sources.nvml.topology_job import TopologySurvey

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
        self._inventory = inventory
        self._root = root
        self._read: dict[str, Gpu] = {}
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
            missing = [gpu for gpu in gpus if gpu.uuid not in {*self._state.topology.cards, *stuck}]
            unread = list({*unread, *(gpu for gpu in missing if gpu.up)})
        if unread or is_due:
            await self._run_survey(list(gpus), unread)
        await self._emit()

    async def _run_survey(self, gpus: list[Gpu], unread: list[Gpu]) -> None:
        topology = self._state.topology
        self._read.update((gpu.uuid, gpu) for gpu in unread)
        survey = TopologySurvey(self._state.nvml, topology, gpus, unread, self._root)
        try:
            await self._state.workers.run(survey)
        finally:
            topology.hung.update(tuple(topology.active_calls.values()))
            self._inventory.errors += survey.errors
        for uuid in survey.changed:
            self._read.pop(uuid, None)
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
        state.topology.retain({d.uuid for d in devices}, set(self._inventory.gpus.values()))
        not_responding = state.history.down | state.workers.stuck
        topology = state.topology.read(
            device for device in devices if device.uuid not in not_responding
        )
        if topology != self._emitted:
            self._emitted = topology
            await self._ctx.emit(topology)
