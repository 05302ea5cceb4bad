"""Stories of nodes that write an archive on a real S3 server, in which everything is killed.

    python -m tests.e2e.archive_kills --runs 500 --seed 0

Each node has a real ledger, which is fed by the ledger's own writer. `podgpu archive --once`,
`podgpu archive compact` (also two at once) and the S3 server are ended by SIGKILL at random
moments, and answers of the server get lost. Nodes come and go. At the end everything runs once
more without faults. Then the archive must have exactly the sums and the holdings of all ledgers.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from pipeline.ledger.outbox import first_object
from pipeline.ledger.schema import HOUR_NS
from tests.e2e.archive_content import check_archive
from tests.e2e.archive_processes import Command, Starter
from tests.e2e.lossy_proxy import LossyProxy, losing
from tests.e2e.processes import wait_until
from tests.e2e.s3_server import BUCKET, S3Server, serving
from tests.pipeline.ledger.archive_world import World

CLUSTER = "east"
_LONGEST_AGE = 60
"""Age in hours of the first usage. The latest days are not closed, so they are not compacted."""


class Story:
    """One story.

    Args:
        server: the S3 server.
        starter: starts the commands.
        folder: an empty folder for the ledgers.
        seed: number of the story.
    """

    usual_seconds = 0.4
    """How long a command usually takes."""

    def __init__(self, server: S3Server, starter: Starter, folder: Path, seed: int) -> None:
        self.server = server
        self.starter = starter
        self.folder = folder
        self.random = random.Random(seed)
        self.prefix = f"story-{seed}"
        self.worlds: dict[str, World] = {}
        self.present: list[str] = []
        self.counts: Counter[str] = Counter()
        self._latest_ns = (time.time_ns() // HOUR_NS - 2) * HOUR_NS

    @property
    def location(self) -> str:
        """The location of the archive."""
        return f"s3://{BUCKET}/{self.prefix}"

    def play(self) -> None:
        """Play the story, and check the archive.

        Raises:
            AssertionError: the archive differs from the ledgers.
        """
        self._arrive()
        self._arrive()
        for _ in range(self.random.randint(3, 5)):
            if self.random.random() < 0.2:
                self._arrive()
            self._step()
            if self.random.random() < 0.2 and len(self.present) > 1:
                self._leave(self.random.choice(self.present))
        for name in self.present:
            self._write_all(name)
        if self.random.random() < 0.9:
            assert self._compaction().wait() == 0, self._log()
        check_archive(self.location, self.server, self.worlds, self.folder)
        for world in self.worlds.values():
            world.close()

    def _arrive(self) -> None:
        name = f"node-{len(self.worlds)}"
        start_ns = self._latest_ns - _LONGEST_AGE * HOUR_NS
        world = World(self.folder / f"{name}.db", now_ns=start_ns, latest_ns=start_ns)
        self.worlds[name] = world
        self.present.append(name)
        self._feed(world, 8)

    def _leave(self, name: str) -> None:
        """Let a node write for the last time. Nothing of it runs afterwards."""
        self._write_all(name)
        self.present.remove(name)
        self.counts["nodes that went away"] += 1

    def _feed(self, world: World, events: int) -> None:
        chance = self.random
        for _ in range(events):
            pod = chance.choice(["", "a", "b", "c"])
            world.wait(
                min(chance.randint(0, 400), (self._latest_ns - world.now_ns) // 60_000_000_000)
            )
            match chance.randint(0, 9):
                case 0:
                    world.describe(pod or "a", chance.choice(["x", "y"]))
                case 1 | 2:
                    minutes = chance.choice([None, 0, 30, 2000])
                    world.hold(chance.choice("klm"), minutes, chance.randint(1, HOUR_NS))
                case 3:
                    world.gap(chance.choice("pq"), chance.randint(0, 300))
                case 4 if chance.random() < 0.3:
                    world.drop(chance.choice("klm"))
                case _:
                    gain = (
                        chance.randint(0, HOUR_NS),
                        chance.choice([None, 0, chance.randint(1, HOUR_NS)]),
                        chance.choice([None, 0, chance.randint(1, 10**9)]),
                    )
                    world.usage(chance.randint(0, 30), pod, gain, chance.randint(0, 1), 5)

    def _step(self) -> None:
        """Let some commands run at the same time, and kill some of them, and the server."""
        chance = self.random
        for name in self.present:
            self._feed(self.worlds[name], chance.randint(1, 6))
        begun = time.monotonic()
        moments: list[tuple[float, Callable[[], None]]] = []
        running: list[Command] = []
        with ExitStack() as proxies:
            starts: list[tuple[str, Callable[[int], Command]]] = [
                *(("write", partial(self._write, name)) for name in self.present),
                *([("compaction", self._compaction)] * chance.choice([0, 1, 1, 2])),
            ]
            for kind, start in starts:
                proxy = proxies.enter_context(losing(self.server.port))
                victim = _Victim(kind, self.counts)
                proxy.loses = lambda name: name == "PUT" and chance.random() < 0.1
                match chance.choice(["moment", "request", "request", "never"]):
                    case "moment":
                        at = chance.uniform(0, 1.1 * self.usual_seconds)
                        moments.append((at, partial(victim.kill, "at a random moment")))
                    case "request":
                        # A write has some requests per object; a compaction has more kinds.
                        victim.trap(proxy, chance.randint(1, 10), answered=chance.random() < 0.5)
                    case _:
                        pass
                victim.command = start(proxy.port)
                running.append(victim.command)
            if chance.random() < 0.25:
                moments.append((chance.uniform(0, self.usual_seconds), self._kill_server))
            for moment, act in sorted(moments, key=lambda each: each[0]):
                time.sleep(max(0.0, begun + moment - time.monotonic()))
                act()
            statuses = [command.wait() for command in running]
        assert all(status in (0, 1, -9) for status in statuses), self._log()
        whole = [one.seconds for one, status in zip(running, statuses, strict=True) if not status]
        if whole:
            # Random moments of a command that takes as long as on this machine now.
            Story.usual_seconds = 0.7 * Story.usual_seconds + 0.3 * sum(whole) / len(whole)

    def _kill_server(self) -> None:
        self.server.kill()
        self.counts["killed: server"] += 1
        time.sleep(self.random.uniform(0, 0.2))
        self.server.start()

    def _write(self, name: str, port: int | None = None) -> Command:
        ledger = str(self.folder / f"{name}.db")
        options = ["--to", self.location, "--cluster", CLUSTER, "--node", name, "--ledger", ledger]
        return self._command(["archive", *options, "--once"], port)

    def _write_all(self, name: str) -> None:
        status = self._write(name).wait()
        assert status == 0, self._log()
        assert first_object(self.worlds[name].connection) is None

    def _compaction(self, port: int | None = None) -> Command:
        command = ["archive", "compact", self.location, "--older-than", "1h", "--memory", "128MiB"]
        return self._command(command, port)

    def _command(self, arguments: list[str], port: int | None) -> Command:
        env = self.server.environment(port) | {"TMPDIR": str(self.folder)}
        return Command(self.starter, arguments, env, self.folder / "podgpu.log")

    def _log(self) -> str:
        return (self.folder / "podgpu.log").read_text()[-3000:]


class _Victim:
    """A command that is killed, at a moment or at one of its requests."""

    def __init__(self, kind: str, counts: Counter[str]) -> None:
        self.command: Command | None = None
        self._kind = kind
        self._counts = counts

    def trap(self, proxy: LossyProxy, number: int, *, answered: bool) -> None:
        """Kill it at a request.

        Args:
            proxy: the proxy that it uses.
            number: which request.
            answered: whether the server handles the request; its answer is lost.
        """
        left = itertools.count(1)
        loses = proxy.loses

        def before(name: str) -> None:
            if not answered and next(left) == number:
                self.kill(f"before {name}")

        def after(name: str) -> bool:
            if answered and next(left) == number:
                self.kill(f"after {name}")
            if lost := loses(name):
                self._counts[f"answer lost: {name}"] += 1
            return lost

        proxy.before, proxy.loses = before, after

    def kill(self, where: str) -> None:
        """End it by SIGKILL, and count that it was there."""
        wait_until(lambda: self.command, "the command has started")
        assert self.command is not None
        if self.command.kill():
            self._counts[f"killed: {self._kind} {where}"] += 1


def play(runs: int, seed: int, report: Callable[[str], None] = lambda _: None) -> Counter[str]:
    """Play stories, and return how often each kind of fault happened.

    Raises:
        AssertionError: an archive differs from the ledgers; the error names the story.
    """
    counts: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as server,
        closing(Starter()) as starter,
    ):
        for number in range(seed, seed + runs):
            ledgers = Path(folder) / f"ledgers-{number}"
            ledgers.mkdir()
            story = Story(server, starter, ledgers, number)
            try:
                story.play()
            except BaseException as error:
                error.add_note(f"story {number}")
                raise
            counts += story.counts
            report(f"{number}: {sum(counts.values())} faults")
    return counts


def main() -> int:
    """Play the stories that the arguments ask for, and print the faults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begun = time.monotonic()
    counts = play(arguments.runs, arguments.seed, lambda text: print(text, flush=True))
    for what, count in sorted(counts.items()):
        print(f"{count:6} {what}")
    print(f"{arguments.runs} stories in {time.monotonic() - begun:.0f} s; no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
