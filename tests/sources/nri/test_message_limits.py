"""A faulty or malicious runtime can't make podgpu use much memory or time."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_MB = 200
"""For a message of 4 MiB and its decoded parts, with a margin."""

CODE = """
import os, resource, sys, time
from sources.nri.mux import ConnectionLostError
from tests.fakes.nri import wire
from tests.sources.nri.plugin_connection import PluginConnection

def field(number, data):
    return wire.varint(number << 3 | 2) + wire.varint(len(data)) + data

def many(number, data=b""):
    one = field(number, data)
    return one * ((4_190_000 - 400) // len(one))

def annotations():
    pairs = (wire.message({1: f"cdi.k8s.io/{n}", 2: "a.io/gpu=1"}) for n in range(125_000))
    return b"".join(field(6, pair) for pair in pairs)

KINDS = {
    "pods with an id": (True, lambda: many(1, b"\\x0a\\x01x")),
    "containers with an id": (True, lambda: many(2, b"\\x0a\\x01x")),
    "variables": (False, lambda: many(8)),
    "mounts": (False, lambda: many(9)),
    "annotations": (False, annotations),
    "devices": (False, lambda: field(11, many(2))),
    "CDI devices": (False, lambda: many(20)),
    "one name": (False, lambda: field(3, b"x" * 4_000_000)),
}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def measure(kind):
    synchronize, make = KINDS[kind]
    parts = make()
    connection = PluginConnection()
    connection.synchronize([wire.pod()], [wire.container(pid=1)])
    before, start = peak(), time.monotonic()
    try:
        if synchronize:
            connection.call("Synchronize", parts)
        else:
            connection.send_event("PostStartContainer", wire.pod(), wire.container(pid=2) + parts)
    except ConnectionLostError:
        pass
    print(kind, peak() - before, time.monotonic() - start, sep="\\t", flush=True)

# The peak of a process that is not the first is counted from its own start.
for kind in KINDS:
    if os.fork() == 0:
        measure(kind)
        os._exit(0)
    _, status = os.wait()
    assert status == 0, kind
"""


@pytest.mark.slow
def test_a_message_of_four_megabytes_takes_little_memory_and_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == 8
    for kind, megabytes, seconds in lines:
        assert float(megabytes) < MOST_MB, kind
        assert float(seconds) < 5, kind
