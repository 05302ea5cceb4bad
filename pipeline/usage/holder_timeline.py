"""Who held a device, and from when on."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pipeline.model import Evidence, Holder, Instant, PodInfo
from pipeline.usage.interval_samples import ContainerName

MAX_CHANGES: Final = 256
"""How many changes of the holders of a device are kept in mind, counted back from the newest. What
lies before all of them is nobody's."""

WHOLE: Final = 1 << 40
"""A whole device, in the numbers in which parts are reckoned."""


class HolderShare(NamedTuple):
    """A container that holds a device.

    Attributes:
        container: its name.
        share: part of the device; None where nobody says.
        pod: what is known of its pod.
        source: by whose word.
        evidence: what that word rests on.
    """

    container: ContainerName
    share: float | None
    pod: PodInfo | None
    source: str = ""
    evidence: Evidence | None = None


class HolderChange(NamedTuple):
    """A moment from which on certain containers held a device.

    Attributes:
        at: the moment.
        held: the containers, sorted.
        weights: of each the part that it held, and at the end that which nobody held.
        holders_known: whether a source told who holds the device. Else what these containers don't
            hold isn't known to be free.
    """

    at: Instant
    held: tuple[HolderShare, ...]
    weights: tuple[int, ...]
    holders_known: bool = True

    @property
    def containers(self) -> frozenset[ContainerName]:
        """The names of the holders."""
        return frozenset([one.container for one in self.held])


class HolderSpan(NamedTuple):
    """A span of time in which the holders didn't change.

    Attributes:
        start_ns: by the monotonic clock.
        time_ns: how long it is; more than 0.
        change: who held the device; None where that isn't known.
    """

    start_ns: int
    time_ns: int
    change: HolderChange | None


def weights(shares: Sequence[float | None]) -> tuple[int, ...]:
    """Return what each of several holders has of a device, and at the end what nobody has.

    A known share is that part. Those of unknown share have equal parts of what is left; if nothing
    is, each has as much as the smallest known share. The sum of the weights is the whole: so what
    is more than 1 in all is scaled down.
    """
    known = [_part(share) for share in shares]
    told = sum(part for part in known if part is not None)
    unknown = known.count(None)
    left = WHOLE - told
    if left <= len(known):
        # Three thirds are a whole, though each of them is rounded.
        left = 0
    if not unknown:
        return (*(part or 0 for part in known), left)
    if left:
        return (*(left if part is None else part * unknown for part in known), 0)
    least = min(part for part in known if part is not None)
    return (*(least if part is None else part for part in known), 0)


def _part(share: float | None) -> int | None:
    if share is None or not 0 < share <= 1:
        return None
    return max(round(share * WHOLE), 1)


def holder_shares(holders: Sequence[Holder]) -> tuple[HolderShare, ...]:
    """Return who holds a device, sorted; each container once, whatever its id."""
    found: dict[ContainerName, HolderShare] = {}
    for holder in holders:
        subject = holder.subject
        container = (subject.namespace, subject.pod, subject.container, subject.uid)
        if container not in found:
            found[container] = HolderShare(
                container, holder.share, holder.pod, holder.source, holder.evidence
            )
    return tuple(found[name] for name in sorted(found))


class HolderTimeline:
    """The holders of one device over time, as far back as somebody may still ask.

    Attributes:
        incomplete: holders of whom the pod's name or uid was missing, each with the newest change
            that had it.
    """

    def __init__(self) -> None:
        self._changes: deque[HolderChange] = deque(maxlen=MAX_CHANGES)
        self.incomplete: dict[ContainerName, int] = {}

    @property
    def last(self) -> HolderChange | None:
        """The newest change: who holds the device now."""
        return self._changes[-1] if self._changes else None

    def record(
        self, held: tuple[HolderShare, ...], at: Instant, *, holders_known: bool = True
    ) -> None:
        """Note who holds the device from a moment on; one before the newest change is moved there.

        Args:
            held: sorted by container.
            at: the moment.
            holders_known: whether a source tells who holds the device.
        """
        cuts = self._changes
        for one in held:
            if not (one.container[1] and one.container[3]):
                self.incomplete[one.container] = at.mono_ns
        new = HolderChange(at, held, weights([one.share for one in held]), holders_known)
        if not cuts:
            cuts.append(new)
            return
        last = cuts[-1]
        same = [one[:2] for one in last.held] == [one[:2] for one in held]
        if same and last.holders_known == holders_known:
            # The same holders: of their pods something else is known.
            cuts[-1] = last._replace(held=held)
        elif at.mono_ns <= last.at.mono_ns:
            cuts[-1] = new._replace(at=last.at)
        else:
            cuts.append(new)

    def rename(
        self, before: ContainerName, name: ContainerName, referred_to: Callable[[Instant], bool]
    ) -> None:
        """Let a container have another name, as far back as that is what was meant.

        Args:
            before: its name so far.
            name: its name.
            referred_to: tells whether it was the container of that name at a moment.
        """
        for place in range(len(self._changes) - 1, -1, -1):
            cut = self._changes[place]
            names = [one.container for one in cut.held]
            if before not in names:
                continue
            if not referred_to(cut.at):
                return
            if name in names:
                continue
            *parts, rest = cut.weights
            renamed = [
                (one._replace(container=name) if one.container == before else one, part)
                for one, part in zip(cut.held, parts, strict=True)
            ]
            renamed.sort(key=lambda one: one[0].container)
            held = tuple([one for one, _ in renamed])
            self._changes[place] = cut._replace(
                held=held, weights=(*(part for _, part in renamed), rest)
            )

    def at(self, moment_ns: int) -> tuple[HolderShare, ...]:
        """Return who held the device at a moment."""
        for cut in reversed(self._changes):
            if cut.at.mono_ns <= moment_ns:
                return cut.held
        return ()

    def after(self, moment_ns: int) -> list[HolderChange]:
        """Return the changes since a moment, the earliest first."""
        return [cut for cut in self._changes if cut.at.mono_ns > moment_ns]

    def released(self, container: ContainerName, until_ns: int | None = None) -> Instant | None:
        """Return when a container last ceased to hold the device, as far as is kept in mind.

        Args:
            container: its name.
            until_ns: what came after that moment doesn't count.

        Returns:
            None if it holds it now, or never did.
        """
        later: HolderChange | None = None
        for cut in reversed(self._changes):
            if until_ns is not None and cut.at.mono_ns > until_ns:
                continue
            if any(one.container == container for one in cut.held):
                return later.at if later is not None else None
            later = cut
        return None

    def spans(self, start_ns: int, end_ns: int) -> list[HolderSpan]:
        """Return the span from `start_ns` to before `end_ns`, cut where the holders changed."""
        found: list[HolderSpan] = []
        end = end_ns
        for cut in reversed(self._changes):
            start = max(cut.at.mono_ns, start_ns)
            if start < end:
                found.append(HolderSpan(start, end - start, cut))
                end = start
            if end <= start_ns:
                break
        if start_ns < end:
            found.append(HolderSpan(start_ns, end - start_ns, None))
        found.reverse()
        return found

    def forget(self, before_ns: int) -> None:
        """Let go of what was over before a moment."""
        cuts = self._changes
        while len(cuts) > 1 and cuts[1].at.mono_ns <= before_ns:
            cuts.popleft()
        if self.incomplete:
            now = {one.container for one in cuts[-1].held} if cuts else set()
            oldest = cuts[0].at.mono_ns if cuts else before_ns
            self.incomplete = {
                n: ns for n, ns in self.incomplete.items() if n in now or ns >= oldest
            }
