"""Run a fake runtime on the given socket, with containers that start and end, until killed."""

import sys
import time
from pathlib import Path

from tests.fakes.nri import FakeRuntime, wire

if __name__ == "__main__":
    with FakeRuntime(Path(sys.argv[1])) as runtime:
        pod = wire.pod()
        while True:
            time.sleep(0.05)
            runtime.run(pod, key=str(time.monotonic_ns()))
            if len(runtime.containers) > 3:
                runtime.end(pod, next(iter(runtime.containers)))
