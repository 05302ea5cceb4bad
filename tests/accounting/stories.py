"""Generate random stories of a small node; the same seed generates the same story."""

from typing import Final

from tests.accounting.actions import (
    HOUR,
    MS,
    ClockSet,
    ContainerChanged,
    ContainersListed,
    DevicesChanged,
    ErrorReported,
    Killed,
    KubeletChanged,
    PodListChanged,
    Process,
    Rebooted,
    Reloaded,
    RuntimeReported,
    S,
    Sample,
    SamplesReported,
    SourceFailed,
    Started,
    Stopped,
    Story,
)
from tests.accounting.node import Node

# Two pods of one name, a pod of two containers, and one that may use a device without holding it.
CONTAINERS: Final = ("a/main/a1", "a/main/a2", "b/main/b1", "b/side/b1", "c/main/c1")
WHOLE: Final = ("k1/main/k1", "k2/main/k2")
SHARES: Final = (None, None, None, 0.25, 0.5, 1 / 3)
TO_2039: Final = 12 * 366 * 24 * HOUR
STEPS: Final = (HOUR, -HOUR, 7 * 24 * HOUR, -2500 * MS, TO_2039, -TO_2039, 200 * MS)
PAUSES: Final = (300 * MS, S, 5 * S, 5 * S, 5 * S, 5 * S, 8 * S, 13 * S)


class StoryGenerator(Node):
    """Generate what happens next."""

    def make(self, seed: int) -> Story:
        rng = self.rng
        wall = 1_800_000_000 * S + rng.randrange(-400 * S, 400 * S)
        wall += rng.choice((0, 0, 0, *STEPS))
        commit = rng.choice((100 * MS, S, 5 * S, 5 * S, 20 * S))
        for _ in range(rng.randrange(4)):
            self.change_node(report=False)
        for number in range(runs := rng.choice((1, 2, 2, 3, 3, 4))):
            self.start_podgpu()
            for _ in range(rng.randrange(1, 22)):
                self.add_random_action()
            if number + 1 == runs:
                self.wait(5 * S)
                self.add_samples()
                self.wait(S)
                self.actions.append(Stopped(self.now))
            else:
                self.end_podgpu()
        return Story(seed, tuple(self.actions), wall, commit, self.sources, rng.random() < 0.5)

    # -- podgpu ---------------------------------------------------------------------------------

    def start_podgpu(self) -> None:
        self.wait(300 * MS)
        slow = self.rng.choice((0, 0, 0, 0, 3 * S, 7 * S)) if "runtime" in self.sources else 0
        self.in_file.clear()
        self.actions.append(
            Started(
                self.now,
                {container: dict(holds) for container, holds in self.running.items()},
                dict(self.allocated),
                tuple(one for one in self.devices if one not in self.lost),
                bool(slow),
            )
        )
        self.since = dict.fromkeys(self.devices)
        self.unsampled = set(self.devices)
        if slow:
            start = self.now
            if self.rng.random() < 0.5:
                self.wait(0)
                self.add_samples(early=True)
            self.now = max(self.now, start + slow)
            self.actions.append(RuntimeReported(self.now))
        self.wait(100 * MS)
        self.add_samples()

    def end_podgpu(self) -> None:
        rng = self.rng
        self.wait(rng.choice((0, S, 3 * S)))
        ended = Killed if rng.random() < 0.7 else Stopped
        self.actions.append(ended(self.now))
        for _ in range(rng.randrange(4)):
            self.wait(rng.choice((S, 5 * S, 20 * S, 200 * S)))
            if rng.random() < 0.6:
                self.change_node(report=False)
        if rng.random() < 0.25:
            self.set_clock()
        if self.reboots and rng.random() < 0.5:
            self.wait(S)
            self.actions.append(Rebooted(self.now))
            self.counter = dict.fromkeys(self.devices, 0)

    # -- what happens ---------------------------------------------------------------------------

    def wait(self, least: int) -> None:
        self.now += least + self.rng.randrange(1, 300 * MS)

    def add_random_action(self) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.5:
            self.wait(rng.choice(PAUSES))
            self.add_samples()
            return
        self.wait(rng.choice((0, 0, S, 3 * S)))
        if roll < 0.75:
            self.change_node(report=True)
        elif roll < 0.82:
            self.report_error()
        elif roll < 0.88:
            self.set_clock()
        elif roll < 0.91:
            self.reload_component()
        elif roll < 0.94:
            self.lose_or_return_gpu()
        elif roll < 0.95 and "other" in self.sources:
            self.report_contradiction()
        elif roll < 0.96 and "runtime" in self.sources:
            self.actions.append(ContainersListed(self.now))
        elif roll < 0.98:
            self.fail_driver_source()
        else:
            self.wait(rng.choice((20 * S, 70 * S, 320 * S)))
            self.restart_samples()
            self.add_samples()

    def set_clock(self) -> None:
        steps = [by for by in STEPS if abs(by) == HOUR or not self.reboots]
        self.actions.append(ClockSet(self.now, self.rng.choice(steps)))

    def reload_component(self) -> None:
        what = self.rng.choice(("gpus", "usage", "usage"))
        self.actions.append(Reloaded(self.now, what))
        if what == "gpus":
            self.restart_samples()

    def lose_or_return_gpu(self) -> None:
        """Lose a GPU, or return it; not in stories with reboots, where its account would be as old
        as the wall clock shows."""
        if self.reboots:
            return
        if self.lost:
            self.lost.clear()
        else:
            lost = self.rng.choice([one for one in self.devices if one in {"g0", "g1"}])
            self.lost.add(lost)
            self.since[lost] = None
            self.users[lost].clear()
        self.actions.append(
            DevicesChanged(self.now, tuple(one for one in self.devices if one not in self.lost))
        )

    def fail_driver_source(self) -> None:
        """Let the driver's source fail for a while."""
        self.actions.append(SourceFailed(self.now, "gpus"))
        self.restart_samples()
        self.wait(8 * S)

    def restart_samples(self) -> None:
        self.since = dict.fromkeys(self.devices)

    def report_contradiction(self) -> None:
        """Let a source that is later in the configuration report other usage of the GPUs."""
        rng, samples = self.rng, []
        for device in ("g0", "g1"):
            since = self.since.get(device)
            recent = since is not None and self.now - since < 10 * S
            if since is not None and recent and device not in self.lost | self.unsampled:
                busy = rng.randrange(self.now - since)
                processes = (Process(rng.choice(("", None)), busy, 77),)
                samples.append(
                    Sample(device, self.now, since, processes, busy=busy, energy=1 << 40)
                )
        if samples:
            self.actions.append(SamplesReported(self.now, tuple(samples), "other"))

    def report_error(self) -> None:
        device = self.rng.choice([one for one in self.devices if one in {"g0", "g1"}])
        code = self.rng.choice((13, 31, 79, 94))
        key = f"{device} {code}"
        if self.now - self.errors.get(key, -HOUR) > 10 * S:
            self.errors[key] = self.now
            self.actions.append(ErrorReported(self.now, device, code, self.now))
            if self.rng.random() < 0.3:
                reported_at = self.now
                self.wait(0)
                self.actions.append(
                    ErrorReported(self.now, device, code, reported_at + 5 * MS, "kernel")
                )

    def change_node(self, *, report: bool) -> None:
        """Start or end a container, or let one start or stop to use a device."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.2 and "g1" in self.devices:
            self.change_whole_gpu(report=report)
        elif roll < 0.5:
            self.toggle_use()
        else:
            self.change_container(report=report)

    def change_container(self, *, report: bool) -> None:
        rng = self.rng
        container = rng.choice(CONTAINERS)
        other = {"a/main/a1": "a/main/a2", "a/main/a2": "a/main/a1"}.get(container)
        report = report and "runtime" in self.sources
        for one in (container, other):
            if one in self.running:
                del self.running[one]
                for device in self.devices:
                    if one in self.users[device]:
                        self.users[device].discard(one)
                        self.departed[device].add(one)
                if report:
                    self.actions.append(ContainerChanged(self.now, one, None))
                return
        devices = [one for one in self.devices if one in {"g0", "m1", "m2"}]
        holds = {
            device: rng.choice(SHARES) for device in rng.sample(devices, rng.choice((0, 1, 1, 1)))
        }
        if self.mig and rng.random() < 0.2:
            holds = {device: rng.choice(SHARES) for device in ("g0", "m2")}
        self.running[container] = holds
        if report:
            self.actions.append(ContainerChanged(self.now, container, dict(holds)))

    def change_whole_gpu(self, *, report: bool) -> None:
        rng = self.rng
        report = report and "kubelet" in self.sources
        if rng.random() < 0.3:
            container = None if self.in_file else "f/main/f1"
            self.in_file = {"g1": container} if container else {}
            if report:
                self.actions.append(PodListChanged(self.now, "g1", container))
            else:
                self.in_file = {}
            return
        container = rng.choice((None, *WHOLE))
        before = self.allocated.pop("g1", None)
        if container == before:
            container = None
        if container is not None:
            self.allocated["g1"] = container
        if report and before != container:
            self.actions.append(KubeletChanged(self.now, "g1", container))

    def toggle_use(self) -> None:
        rng = self.rng
        device = rng.choice([one for one in self.devices if one != "g2"])
        if not self.nameable:
            return
        container = rng.choice(self.nameable)
        if device in {"m1", "m2"} and device not in self.running[container]:
            return
        if container in self.users[device]:
            self.users[device].discard(container)
            self.departed[device].add(container)
        else:
            self.users[device].add(container)

    # -- samples --------------------------------------------------------------------------------

    def add_samples(self, *, early: bool = False) -> None:
        rng = self.rng
        samples = []
        for device in self.devices:
            if device in self.lost or (rng.random() < 0.1 and device in {"g0", "g1"}):
                continue
            if not self.mig or device in {"g0", "g1"}:
                self.now += rng.randrange(1, 2 * MS)
            samples.append(self.sample_device(device))
        if rng.random() < 0.2 and not early:
            self.now += rng.randrange(300 * MS)
            if rng.random() < 0.5:
                self.change_container(report=True)
        self.now += rng.randrange(1, MS)
        if not early:
            self.unsampled -= {one.device for one in samples}
        if samples:
            self.actions.append(SamplesReported(self.now, tuple(samples)))


def generate_story(seed: int) -> Story:
    """Return the story of a seed."""
    return StoryGenerator(seed).make(seed)
