"""Cause faults at random times while a checker examines podgpu.

    python -m tests.soak [--minutes N] [--seed N]

A seed repeats the order of the faults and how long each lasts. The disk that fills up is a tmpfs
in a separate mount namespace, which needs root or user namespaces. Without them that fault is left
out, and the program prints so.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.e2e.processes import wait_until
from tests.soak.checker import Checker, Figures
from tests.soak.faults import FAULTS, Fault, Undo
from tests.soak.judging import judge
from tests.soak.world import DISK_MIB, World
from tests.support.mounts import UNSHARE

_INSIDE: Final = "PODGPU_SOAK_INSIDE"
_WARM: Final = 20.0
"""Seconds without faults at the beginning, and at the end."""

_SIMULTANEOUS: Final = 3
"""The highest number of simultaneous faults."""


def play(world: World, checker: Checker, seconds: float, *, mount: bool) -> Counter[str]:
    """Cause and end faults for some seconds; return how often each fault occurred."""
    chance, played = world.chance, Counter[str]()
    lasting: list[tuple[float, Fault, Undo]] = []
    end = time.monotonic() + seconds
    # The last run is long, so that leaks accumulate.
    last_run = end - seconds / 3
    next_fault = time.monotonic()
    while ((now := time.monotonic()) < end or lasting) and not checker.over:
        for each in [one for one in lasting if one[0] <= now]:
            lasting.remove(each)
            _, fault, undo = each
            undo()
            if fault.unresponsive:
                checker.end_unresponsive()
            print(f"{time.strftime('%H:%M:%S')} {fault.name}: over", flush=True)
        if next_fault <= now < end and len(lasting) < _SIMULTANEOUS:
            next_fault = now + chance.uniform(0.2, 2.5)
            fault = chance.choice(FAULTS)
            seconds = fault.seconds * chance.uniform(0.2, 1)
            taken = {place for _, other, _ in lasting for place in other.places}
            late = now > last_run and fault.name in {"SIGKILL", "restart"}
            if fault.places & taken or late or (fault.mount and not mount):
                continue
            print(f"{time.strftime('%H:%M:%S')} {fault.name} ({seconds:.1f} s)", flush=True)
            played[fault.name] += 1
            world.count(fault.places, fault.name, seconds)
            if fault.unresponsive:
                checker.begin_unresponsive()
            lasting.append((now + seconds, fault, fault.apply(world)))
        time.sleep(0.05)
    return played


def calm(checker: Checker, seconds: float) -> Figures:
    """Wait without faults; return the resource use of the process after that."""
    time.sleep(seconds)
    found = checker.figures()
    if found is None:
        raise RuntimeError("podgpu does not run")
    return found


def soak(minutes: float, seed: int, disk: Path, *, mount: bool) -> int:
    """Run a soak test; return the exit status, 1 if a check failed."""
    print(f"soak of {minutes:g} minutes, seed {seed}", flush=True)
    if not mount:
        print("this user may not mount: the fault `disk full` is left out", flush=True)
    with tempfile.TemporaryDirectory(prefix="podgpu-soak-") as made:
        world = World(Path(made), disk if mount else Path(made), random.Random(seed))
        checker = Checker(world)
        try:
            for receiver in world.receivers.values():
                receiver.start()
            world.start()
            wait_until(lambda: checker.get("/readyz"), "podgpu is ready")
            checker.start()
            first = calm(checker, _WARM)
            played = play(world, checker, max(minutes * 60 - 2 * _WARM, 20), mount=mount)
            if not checker.over:
                judge(world, checker, first, calm(checker, _WARM))
        finally:
            checker.stop()
            world.close()
        print("\n".join(f"{count:4} {name}" for name, count in sorted(played.items())))
        if checker.wrong:
            kept = Path(tempfile.gettempdir()) / f"podgpu-soak-{seed}.log"
            kept.write_text(world.log_text())
            print(f"podgpu's log: {kept}")
        print(f"soak of {minutes:g} minutes, seed {seed}: {len(checker.wrong)} errors", flush=True)
    return bool(checker.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    if _INSIDE not in os.environ:
        again = [
            sys.executable,
            "-m",
            "tests.soak",
            f"--minutes={arguments.minutes}",
            f"--seed={seed}",
        ]
        may_mount = (
            subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
        )
        env = {**os.environ, _INSIDE: str(int(may_mount))}
        command = [*UNSHARE, *again] if may_mount else again
        os.execvpe(command[0], command, env)  # noqa: S606
    mount = os.environ[_INSIDE] == "1"
    with tempfile.TemporaryDirectory(prefix="podgpu-soak-disk-") as disk:
        if mount:
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", disk]
            subprocess.run(command, check=True)
        try:
            return soak(arguments.minutes, seed, Path(disk), mount=mount)
        finally:
            if mount:
                subprocess.run(["umount", "-l", disk], check=True)


if __name__ == "__main__":
    sys.exit(main())
