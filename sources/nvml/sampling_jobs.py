"""What is done together: opening NVML, one round of readings, one forced reading."""

from collections.abc import Iterable
from functools import partial

from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.readers import GpuReadings
from sources.nvml.worker_pool import NO_TARGET, Job, Step


class OpenJob(Job):
    """Initialise NVML and open every GPU."""

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory.open_steps())
        self.steps.extend(inventory.count_steps(self, rescan=True, vital=True))


class ReadJob(Job):
    """Count the GPUs, open them anew if need be, and read each.

    Attributes:
        published: uuids of the GPUs whose sheets were taken.
    """

    def __init__(self, inventory: Inventory, *, slow: bool, rescan: bool, due_ns: int = 0) -> None:
        super().__init__((), due_ns=due_ns)
        self.published: set[str] = set()
        self._sheets: list[GpuReadings] = []
        self._inventory = inventory
        self._slow = slow
        self.steps.extend(inventory.count_steps(self, rescan=rescan))
        self.steps.append(Step(NO_TARGET, self._fan_out))

    def _fan_out(self) -> None:
        self.steps.extend(
            Step(gpu.uuid, partial(gpu.read, slow=self._slow), self._sheets.append)
            for gpu in self._inventory.gpus.values()
        )

    def take(self) -> list[GpuReadings]:
        """Return the sheets of GPUs that were visited to the end since this was last called.

        Safe to call while the round goes on: the thread only appends.
        """
        sheets = self._sheets[:]
        del self._sheets[: len(sheets)]
        self.published.update(sheet.uuid for sheet in sheets)
        return sheets


class DrainJob(Job):
    """Take the driver's own samples of the GPUs where they would soon be lost."""

    def __init__(self, gpus: Iterable[Gpu], *, due_ns: int) -> None:
        super().__init__((Step(gpu.uuid, gpu.drain) for gpu in gpus), due_ns=due_ns)


class ForcedReadJob(Job):
    """Read energy and utilisation of some GPUs, between two GPUs of a running round.

    Attributes:
        sheets: what was read.
    """

    def __init__(self, gpus: list[Gpu]) -> None:
        super().__init__((), urgent=True)
        self.sheets: list[GpuReadings] = []
        self.steps.extend(Step(gpu.uuid, gpu.read_forced, self.sheets.append) for gpu in gpus)
