"""A runtime on the socket that is named, whose containers come and go until it is killed."""

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
