"""Tests of the module that loads gRPC."""

import subprocess
import sys

import pytest


def output_of(code: str) -> str:
    """Run code in a new process and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_grpc_is_set_to_ignore_forks_and_to_write_nothing_to_stderr() -> None:
    found = output_of(
        "import os, pipeline.net.grpc_library; "
        "print(os.environ['GRPC_ENABLE_FORK_SUPPORT'], os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "0 NONE"


def test_a_set_verbosity_of_grpc_stays() -> None:
    found = output_of(
        "import os; os.environ['GRPC_VERBOSITY'] = 'DEBUG'; import pipeline.net.grpc_library; "
        "print(os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "DEBUG"


@pytest.mark.slow
def test_the_component_registry_does_not_load_grpc() -> None:
    assert output_of(
        "import sys, pipeline.component.registry, pipeline.runtime.runtime; "
        "print('grpc' in sys.modules)"
    ) == ("False")


SPARE = """
import errno, os, resource
from pathlib import Path
import pipeline.net.grpc_library
def taken():
    return len(list(Path("/proc/self/fd").iterdir()))
before = taken()
pipeline.net.grpc_library.check_descriptors()
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
        pipeline.net.grpc_library.check_descriptors()
        worked.append(free)
    except OSError as error:
        assert error.errno == errno.EMFILE
    os.close(held.pop())
    free += 1
print(worked == list(range(worked[0], free)), worked[0])
"""


@pytest.mark.slow
def test_free_descriptors_are_checked_and_released() -> None:
    enough, least = output_of(SPARE).split()
    assert enough == "True"
    assert 8 <= int(least) <= 32
