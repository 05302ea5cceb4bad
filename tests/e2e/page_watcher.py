"""A thread that requests the metrics page continuously and records incomplete responses."""

import re
import threading

from tests.e2e.processes import get
from tests.e2e.scenes import ALL


class Watcher(threading.Thread):
    """Requests the page without pause and records each response without all GPUs."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.asked = 0
        self.faults: list[str] = []
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            self.asked += 1
            try:
                answer = get(self.port, "/metrics")
            except OSError as error:
                self.faults.append(repr(error))
                continue
            found = re.findall(r'^DCGM_FI_DEV_GPU_TEMP\{gpu="(\d)"', answer.body.decode(), re.M)
            if answer.status != 200 or sorted(found) != ALL:
                self.faults.append(f"{answer.status}: temperatures of {found}")

    def end(self) -> None:
        self._end.set()
        self.join(20)
