"""The one place that loads gRPC."""

import subprocess
import sys


def says(code: str) -> str:
    """Run code in a process that has loaded nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_the_library_is_told_not_to_take_part_in_forks_nor_to_write_to_stderr() -> None:
    found = says(
        "import os, pipeline.rpc; "
        "print(os.environ['GRPC_ENABLE_FORK_SUPPORT'], os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "0 NONE"


def test_whoever_looks_for_a_fault_can_let_it_write() -> None:
    found = says(
        "import os; os.environ['GRPC_VERBOSITY'] = 'DEBUG'; import pipeline.rpc; "
        "print(os.environ['GRPC_VERBOSITY'])"
    )
    assert found == "DEBUG"


def test_it_is_not_loaded_with_the_registry() -> None:
    assert says(
        "import sys, pipeline.registry, pipeline.runtime; print('grpc' in sys.modules)"
    ) == ("False")
