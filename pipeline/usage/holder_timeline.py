"""The holders of a device over time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import Holder, Instant
from pipeline.usage.interval_samples import ContainerName

MAX_CHANGES: Final = 256
"""How many changes of a device's holders are kept. The holders before the oldest change are
unknown."""

WHOLE: Final = 1 << 40
"""The weight of a whole device; shares are rounded to multiples of 1 / WHOLE."""


Holders: TypeAlias = Mapping[ContainerName, Holder]
"""The holders of a device by container, sorted."""


class HolderChange(NamedTuple):
    """The holders of a device from one moment on.

    Attributes:
        at: the moment.
        held: the holders.
        weights: the part that each of them holds, followed by the part that no container holds.
        holders_known: whether a source reports all holders. Otherwise it is unknown whether the
            part that no container holds is free.
    """

    at: Instant
    held: Holders
    weights: tuple[int, ...]
    holders_known: bool = True


class HolderSpan(NamedTuple):
    """A span of time without a change of holders.

    Attributes:
        start_ns: start of the span, by the monotonic clock.
        time_ns: length of the span, above 0.
        change: the holders; None if they are unknown.
    """

    start_ns: int
    time_ns: int
    change: HolderChange | None


def weights(shares: Sequence[float | None]) -> tuple[int, ...]:
    """Return the weight of each holder, followed by the weight that no container holds.

    A known share is the holder's part. Holders of unknown share have equal parts of the rest. If
    there is no rest, each of them has as much as the smallest known share. The sum of the weights
    counts as the whole device, so shares that add up to more than 1 are scaled down.
    """
    known = [_part(share) for share in shares]
    known_sum = sum(part for part in known if part is not None)
    unknown = known.count(None)
    left = WHOLE - known_sum
    if left <= len(known):
        # Rounded shares of 1/3 must add up to a whole device.
        left = 0
    if not unknown:
        return (*(part or 0 for part in known), left)
    if left:
        return (*(left if part is None else part * unknown for part in known), 0)
    least = min(part for part in known if part is not None)
    return (*(least if part is None else part for part in known), 0)


def _shares(held: Holders) -> list[float | None]:
    return [one.share for one in held.values()]


def _part(share: float | None) -> int | None:
    if share is None or not 0 < share <= 1:
        return None
    return max(round(share * WHOLE), 1)


def by_container(holders: Sequence[Holder]) -> Holders:
    """Return the holders of a device by container; if one is there twice, its first entry."""
    found: dict[ContainerName, Holder] = {}
    for holder in holders:
        subject = holder.subject
        name = (subject.namespace, subject.pod, subject.container, subject.uid)
        found.setdefault(name, holder)
    return {name: found[name] for name in sorted(found)}


class HolderTimeline:
    """The holders of one device over time, as far back as they may still be needed.

    Attributes:
        incomplete: holders whose pod's name or uid was missing; for each one the time of the newest
            change that contains it.
    """

    def __init__(self) -> None:
        self._changes: deque[HolderChange] = deque(maxlen=MAX_CHANGES)
        self.incomplete: dict[ContainerName, int] = {}

    @property
    def last(self) -> HolderChange | None:
        """The newest change: the holders now."""
        return self._changes[-1] if self._changes else None

    def record(self, held: Holders, at: Instant, *, holders_known: bool = True) -> None:
        """Record the holders from a moment on.

        At or before the moment of the newest change, they replace the holders of that change.

        Args:
            held: the holders.
            at: the moment.
            holders_known: whether a source reports all holders of the device.
        """
        changes = self._changes
        for name in held:
            if not (name[1] and name[3]):
                self.incomplete[name] = at.mono_ns
        new = HolderChange(at, held, weights(_shares(held)), holders_known)
        if not changes:
            changes.append(new)
            return
        last = changes[-1]
        same = [*last.held] == [*held] and _shares(last.held) == _shares(held)
        if same and last.holders_known == holders_known:
            # The holders are the same; only their pod, source or evidence may differ.
            changes[-1] = last._replace(held=held)
        elif at.mono_ns <= last.at.mono_ns:
            changes[-1] = new._replace(at=last.at)
        else:
            changes.append(new)

    def rename(
        self, before: ContainerName, name: ContainerName, referred_to: Callable[[Instant], bool]
    ) -> None:
        """Rename a container in the changes, from the newest one back.

        The first change in which the new name did not mean this container ends the renaming. A
        change that contains both names stays as it is.

        Args:
            before: the old name.
            name: the new name.
            referred_to: returns whether the new name meant this container at a moment.
        """
        for place in range(len(self._changes) - 1, -1, -1):
            change = self._changes[place]
            if before not in change.held:
                continue
            if not referred_to(change.at):
                return
            if name in change.held:
                continue
            *parts, rest = change.weights
            renamed = sorted(
                (name if one == before else one, holder, part)
                for (one, holder), part in zip(change.held.items(), parts, strict=True)
            )
            self._changes[place] = change._replace(
                held={one: holder for one, holder, _ in renamed},
                weights=(*(part for _, _, part in renamed), rest),
            )

    def at(self, moment_ns: int) -> Holders:
        """Return the holders at a moment; none if the holders at that moment are unknown."""
        for change in reversed(self._changes):
            if change.at.mono_ns <= moment_ns:
                return change.held
        return {}

    def after(self, moment_ns: int) -> list[HolderChange]:
        """Return the changes after a moment, the earliest first."""
        return [change for change in self._changes if change.at.mono_ns > moment_ns]

    def released(self, container: ContainerName, until_ns: int | None = None) -> Instant | None:
        """Return when a container last stopped holding the device, as far as changes are kept.

        Args:
            container: name of the container.
            until_ns: ignore changes after this time of the monotonic clock.

        Returns:
            None if the container holds the device at that time, or holds it in no kept change.
        """
        later: HolderChange | None = None
        for change in reversed(self._changes):
            if until_ns is not None and change.at.mono_ns > until_ns:
                continue
            if container in change.held:
                return later.at if later is not None else None
            later = change
        return None

    def spans(self, start_ns: int, end_ns: int) -> list[HolderSpan]:
        """Return the spans from `start_ns` to before `end_ns`, divided at changes of holders."""
        found: list[HolderSpan] = []
        end = end_ns
        for change in reversed(self._changes):
            start = max(change.at.mono_ns, start_ns)
            if start < end:
                found.append(HolderSpan(start, end - start, change))
                end = start
            if end <= start_ns:
                break
        if start_ns < end:
            found.append(HolderSpan(start_ns, end - start_ns, None))
        found.reverse()
        return found

    def forget(self, before_ns: int) -> None:
        """Remove changes that were superseded at or before a moment."""
        changes = self._changes
        while len(changes) > 1 and changes[1].at.mono_ns <= before_ns:
            changes.popleft()
        if self.incomplete:
            now = changes[-1].held if changes else {}
            oldest = changes[0].at.mono_ns if changes else before_ns
            self.incomplete = {
                n: ns for n, ns in self.incomplete.items() if n in now or ns >= oldest
            }
