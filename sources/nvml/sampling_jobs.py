"""Jobs of the worker pool: opening NVML, one round, one forced reading, one drain."""

from collections.abc import Iterable
from functools import partial

from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.targets import GpuReadings
from sources.nvml.worker_pool import NO_TARGET, Job, Step


class OpenJob(Job):
    """Initialise NVML and open every GPU."""

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory.open_steps())
        self.steps.extend(inventory.count_steps(self, rescan=True, critical=True))


class ReadJob(Job):
    """Count the GPUs, open them again if required, and read each.

    Attributes:
        published: uuids of the GPUs whose results were taken.
    """

    def __init__(self, inventory: Inventory, *, slow: bool, rescan: bool, due_ns: int = 0) -> None:
        super().__init__((), due_ns=due_ns)
        self.published: set[str] = set()
        self._results: list[GpuReadings] = []
        self._inventory = inventory
        self._slow = slow
        self.steps.extend(inventory.count_steps(self, rescan=rescan))
        self.steps.append(Step(NO_TARGET, self._fan_out))

    def _fan_out(self) -> None:
        self.steps.extend(
            Step(gpu.uuid, partial(gpu.read, slow=self._slow), self._results.append)
            for gpu in self._inventory.gpus.values()
        )

    def take(self) -> list[GpuReadings]:
        """Return the results of GPUs whose visit ended since the last call.

        Safe to call while the round runs: the thread only appends.
        """
        results = self._results[:]
        del self._results[: len(results)]
        self.published.update(result.uuid for result in results)
        return results


class DrainJob(Job):
    """Read the driver's own samples of the GPUs that it would soon overwrite."""

    def __init__(self, gpus: Iterable[Gpu], *, due_ns: int) -> None:
        super().__init__((Step(gpu.uuid, gpu.drain) for gpu in gpus), due_ns=due_ns)


class ForcedReadJob(Job):
    """Read energy and utilisation of some GPUs, between two steps of a running round.

    Attributes:
        results: the readings.
    """

    def __init__(self, gpus: list[Gpu]) -> None:
        super().__init__((), urgent=True)
        self.results: list[GpuReadings] = []
        self.steps.extend(Step(gpu.uuid, gpu.read_forced, self.results.append) for gpu in gpus)
