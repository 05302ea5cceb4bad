"""Makes up stories of a small node; a seed makes the same story again."""

from typing import Final

from tests.accounting.given_out import (
    HOUR,
    MS,
    Begun,
    Erred,
    Failed,
    Filed,
    Given,
    Killed,
    Listed,
    Look,
    Looked,
    Rebooted,
    Reloaded,
    Running,
    S,
    Set,
    Shown,
    Spoken,
    Stopped,
    Story,
    Work,
)
from tests.accounting.node import Node

# Two pods of one name, one of two containers, and one that uses what it doesn't hold.
CONTAINERS: Final = ("a/main/a1", "a/main/a2", "b/main/b1", "b/side/b1", "c/main/c1")
WHOLE: Final = ("k1/main/k1", "k2/main/k2")
PARTS: Final = (None, None, None, 0.25, 0.5, 1 / 3)
TO_2039: Final = 12 * 366 * 24 * HOUR
STEPS: Final = (HOUR, -HOUR, 7 * 24 * HOUR, -2500 * MS, TO_2039, -TO_2039, 200 * MS)
PAUSES: Final = (300 * MS, S, 5 * S, 5 * S, 5 * S, 5 * S, 8 * S, 13 * S)


class Author(Node):
    """Makes up what happens next."""

    def make(self, seed: int) -> Story:
        rng = self.rng
        wall = 1_800_000_000 * S + rng.randrange(-400 * S, 400 * S)
        wall += rng.choice((0, 0, 0, *STEPS))
        commit = rng.choice((100 * MS, S, 5 * S, 5 * S, 20 * S))
        for _ in range(rng.randrange(4)):
            self.life(tell=False)
        for number in range(runs := rng.choice((1, 2, 2, 3, 3, 4))):
            self.begin()
            for _ in range(rng.randrange(1, 22)):
                self.happen()
            if number + 1 == runs:
                self.wait(5 * S)
                self.look()
                self.wait(S)
                self.acts.append(Stopped(self.now))
            else:
                self.end()
        return Story(seed, tuple(self.acts), wall, commit, self.sources, rng.random() < 0.5)

    # -- podgpu ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self.wait(300 * MS)
        slow = self.rng.choice((0, 0, 0, 0, 3 * S, 7 * S)) if "runtime" in self.sources else 0
        self.filed.clear()
        self.acts.append(
            Begun(
                self.now,
                {who: dict(holds) for who, holds in self.running.items()},
                dict(self.given),
                tuple(one for one in self.devices if one not in self.gone),
                bool(slow),
            )
        )
        self.since = dict.fromkeys(self.devices)
        self.fresh = set(self.devices)
        if slow:
            begun = self.now
            if self.rng.random() < 0.5:
                self.wait(0)
                self.look(early=True)
            self.now = max(self.now, begun + slow)
            self.acts.append(Spoken(self.now))
        self.wait(100 * MS)
        self.look()

    def end(self) -> None:
        rng = self.rng
        self.wait(rng.choice((0, S, 3 * S)))
        ended = Killed if rng.random() < 0.7 else Stopped
        self.acts.append(ended(self.now))
        for _ in range(rng.randrange(4)):
            self.wait(rng.choice((S, 5 * S, 20 * S, 200 * S)))
            if rng.random() < 0.6:
                self.life(tell=False)
        if rng.random() < 0.25:
            self.step()
        if self.reboots and rng.random() < 0.5:
            self.wait(S)
            self.acts.append(Rebooted(self.now))
            self.counter = dict.fromkeys(self.devices, 0)

    # -- what happens ---------------------------------------------------------------------------

    def wait(self, least: int) -> None:
        self.now += least + self.rng.randrange(1, 300 * MS)

    def happen(self) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.5:
            self.wait(rng.choice(PAUSES))
            self.look()
            return
        self.wait(rng.choice((0, 0, S, 3 * S)))
        if roll < 0.75:
            self.life(tell=True)
        elif roll < 0.82:
            self.error()
        elif roll < 0.88:
            self.step()
        elif roll < 0.91:
            self.reload()
        elif roll < 0.94:
            self.lose()
        elif roll < 0.95 and "other" in self.sources:
            self.contradict()
        elif roll < 0.96 and "runtime" in self.sources:
            self.acts.append(Listed(self.now))
        elif roll < 0.98:
            self.break_off()
        else:
            self.wait(rng.choice((20 * S, 70 * S, 320 * S)))
            self.forget_looks()
            self.look()

    def step(self) -> None:
        steps = [by for by in STEPS if abs(by) == HOUR or not self.reboots]
        self.acts.append(Set(self.now, self.rng.choice(steps)))

    def reload(self) -> None:
        what = self.rng.choice(("gpus", "usage", "usage"))
        self.acts.append(Reloaded(self.now, what))
        if what == "gpus":
            self.forget_looks()

    def lose(self) -> None:
        """A GPU is lost, or back; not in stories with boots, where its account would be as old as
        the wall clock says that last had a part in it."""
        if self.reboots:
            return
        if self.gone:
            self.gone.clear()
        else:
            gone = self.rng.choice([one for one in self.devices if one in {"g0", "g1"}])
            self.gone.add(gone)
            self.since[gone] = None
            self.using[gone].clear()
        self.acts.append(
            Shown(self.now, tuple(one for one in self.devices if one not in self.gone))
        )

    def break_off(self) -> None:
        """The driver's source can't do its work for a while."""
        self.acts.append(Failed(self.now, "gpus"))
        self.forget_looks()
        self.wait(8 * S)

    def forget_looks(self) -> None:
        self.since = dict.fromkeys(self.devices)

    def contradict(self) -> None:
        """A source that stands later in the configuration tells something else of the GPUs."""
        rng, looks = self.rng, []
        for device in ("g0", "g1"):
            since = self.since.get(device)
            near = since is not None and self.now - since < 10 * S
            if since is not None and near and device not in self.gone | self.fresh:
                busy = rng.randrange(self.now - since)
                works = (Work(rng.choice(("", None)), busy, 77),)
                looks.append(Look(device, self.now, since, works, busy=busy, energy=1 << 40))
        if looks:
            self.acts.append(Looked(self.now, tuple(looks), "other"))

    def error(self) -> None:
        device = self.rng.choice([one for one in self.devices if one in {"g0", "g1"}])
        code = self.rng.choice((13, 31, 79, 94))
        key = f"{device} {code}"
        if self.now - self.errors.get(key, -HOUR) > 10 * S:
            self.errors[key] = self.now
            self.acts.append(Erred(self.now, device, code, self.now))
            if self.rng.random() < 0.3:
                said = self.now
                self.wait(0)
                self.acts.append(Erred(self.now, device, code, said + 5 * MS, "kernel"))

    def life(self, *, tell: bool) -> None:
        """A container begins, ends, or takes up or leaves off using a device."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.2 and "g1" in self.devices:
            self.whole(tell=tell)
        elif roll < 0.5:
            self.work()
        else:
            self.container(tell=tell)

    def container(self, *, tell: bool) -> None:
        rng = self.rng
        who = rng.choice(CONTAINERS)
        other = {"a/main/a1": "a/main/a2", "a/main/a2": "a/main/a1"}.get(who)
        tell = tell and "runtime" in self.sources
        for one in (who, other):
            if one in self.running:
                del self.running[one]
                for device in self.devices:
                    if one in self.using[device]:
                        self.using[device].discard(one)
                        self.left[device].add(one)
                if tell:
                    self.acts.append(Running(self.now, one, None))
                return
        places = [one for one in self.devices if one in {"g0", "m1", "m2"}]
        holds = {place: rng.choice(PARTS) for place in rng.sample(places, rng.choice((0, 1, 1, 1)))}
        if self.mig and rng.random() < 0.2:
            holds = {place: rng.choice(PARTS) for place in ("g0", "m2")}
        self.running[who] = holds
        if tell:
            self.acts.append(Running(self.now, who, dict(holds)))

    def whole(self, *, tell: bool) -> None:
        rng = self.rng
        tell = tell and "kubelet" in self.sources
        if rng.random() < 0.3:
            who = None if self.filed else "f/main/f1"
            self.filed = {"g1": who} if who else {}
            if tell:
                self.acts.append(Filed(self.now, "g1", who))
            else:
                self.filed = {}
            return
        who = rng.choice((None, *WHOLE))
        before = self.given.pop("g1", None)
        if who == before:
            who = None
        if who is not None:
            self.given["g1"] = who
        if tell and before != who:
            self.acts.append(Given(self.now, "g1", who))

    def work(self) -> None:
        rng = self.rng
        device = rng.choice([one for one in self.devices if one != "g2"])
        if not self.able:
            return
        who = rng.choice(self.able)
        if device in {"m1", "m2"} and device not in self.running[who]:
            return
        if who in self.using[device]:
            self.using[device].discard(who)
            self.left[device].add(who)
        else:
            self.using[device].add(who)

    # -- looks ----------------------------------------------------------------------------------

    def look(self, *, early: bool = False) -> None:
        rng = self.rng
        looks = []
        for device in self.devices:
            if device in self.gone or (rng.random() < 0.1 and device in {"g0", "g1"}):
                continue
            if not self.mig or device in {"g0", "g1"}:
                self.now += rng.randrange(1, 2 * MS)
            looks.append(self.of(device))
        if rng.random() < 0.2 and not early:
            self.now += rng.randrange(300 * MS)
            if rng.random() < 0.5:
                self.container(tell=True)
        self.now += rng.randrange(1, MS)
        if not early:
            self.fresh -= {one.device for one in looks}
        if looks:
            self.acts.append(Looked(self.now, tuple(looks)))


def story(seed: int) -> Story:
    """Return the story of a seed."""
    return Author(seed).make(seed)


__all__ = ["Author", "Failed", "story"]
