"""The one place that loads gRPC."""

import subprocess
import sys


def says(code: str) -> str:
    """Run code in a process that has loaded nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_the_library_is_reported_not_to_take_part_in_forks_nor_to_write_to_stderr() -> None:
    found = says(
        "import os, pipeline.net.grpc_client; "
        "print(os.environ['GRPC_ENABLE_FORK_SUPPORT'], os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "0 NONE"


def test_whoever_looks_for_a_fault_can_let_it_write() -> None:
    found = says(
        "import os; os.environ['GRPC_VERBOSITY'] = 'DEBUG'; import pipeline.net.grpc_client; "
        "print(os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "DEBUG"


def test_it_is_not_loaded_with_the_registry() -> None:
    assert says(
        "import sys, pipeline.component.registry, pipeline.runtime.runtime; "
        "print('grpc' in sys.modules)"
    ) == ("False")


SPARE = """
import errno, os, resource
from pathlib import Path
import pipeline.net.grpc_client
def taken():
    return len(list(Path("/proc/self/fd").iterdir()))
before = taken()
pipeline.net.grpc_client.check_descriptors()
assert taken() == before
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
free, worked = 0, []
while held:
    try:
        pipeline.net.grpc_client.check_descriptors()
        worked.append(free)
    except OSError as error:
        assert error.errno == errno.EMFILE
    os.close(held.pop())
    free += 1
print(worked == list(range(worked[0], free)), worked[0])
"""


def test_descriptors_are_looked_for_and_given_back() -> None:
    enough, least = says(SPARE).split()
    assert enough == "True"
    assert 8 <= int(least) <= 32
