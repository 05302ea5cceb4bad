"""What is done together: opening NVML, one round of readings, one forced reading."""

from functools import partial

from sources.nvml.crew import ANYWHERE, Job, Step
from sources.nvml.gpu import Gpu
from sources.nvml.inventory import Inventory
from sources.nvml.readers import Sheet


class Opening(Job):
    """Initialise NVML and open every GPU."""

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory.open_steps())
        self.steps.extend(inventory.count_steps(self, rescan=True, vital=True))


class Round(Job):
    """Count the GPUs, open them anew if need be, and read each.

    Attributes:
        sheets: what was read, of each GPU that was visited to the end.
    """

    def __init__(self, inventory: Inventory, *, slow: bool, rescan: bool, due_ns: int = 0) -> None:
        super().__init__((), due_ns=due_ns)
        self.sheets: list[Sheet] = []
        self._inventory = inventory
        self._slow = slow
        self.steps.extend(inventory.count_steps(self, rescan=rescan))
        self.steps.append(Step(ANYWHERE, self._fan_out))

    def _fan_out(self) -> None:
        self.steps.extend(
            Step(gpu.uuid, partial(gpu.read, slow=self._slow), self.sheets.append)
            for gpu in self._inventory.gpus.values()
        )


class Forced(Job):
    """Read energy and utilisation of some GPUs, between two GPUs of a running round.

    Attributes:
        sheets: what was read.
    """

    def __init__(self, gpus: list[Gpu]) -> None:
        super().__init__((), urgent=True)
        self.sheets: list[Sheet] = []
        self.steps.extend(Step(gpu.uuid, gpu.force, self.sheets.append) for gpu in gpus)
