"""Who used how much: looks at the devices, from the source that is believed, into the accounts."""

from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.join.mig_placement import Places
from pipeline.join.process_owners import Owners
from pipeline.join.source_table import SourceTable
from pipeline.model import (
    NS,
    Attribution,
    DeviceUse,
    Envelope,
    Instant,
    PartialRef,
    Pod,
    ProcessUse,
    Usage,
)
from pipeline.usage import Accounts, Meant, Process

_KEPT_NS: Final = 300 * NS
"""How long the accounts are kept when no source is left that looks."""

_PATIENCE_NS: Final = 10 * NS
"""How long looks are passed over at the start, while a source has yet to speak: an account under
half of a container's name would end as soon as another source tells the rest."""


class UsageTable:
    """Keeps the accounts.

    Of two sources that look at a device the first in order is believed while its last look is good.

    Attributes:
        accounts: those of all devices.

    Args:
        sources: what is known of each source.
        owners: tells whose a process is.
        run: identifies this run of podgpu.
    """

    def __init__(self, sources: SourceTable, owners: Owners, run: str = "") -> None:
        self.accounts = Accounts(run)
        self._sources = sources
        self._owners = owners
        self._looked: dict[str, dict[str, int]] = {}
        self._feeder: dict[str, str] = {}
        self._tellers: set[str] = set()
        self._silent_ns: int | None = None
        self._first: Instant | None = None
        self._begun = False
        self._start_ns: int | None = None
        self._told_ns: int | None = None
        self._again = False

    @property
    def usage(self) -> Usage | None:
        """What was used; None where no source tells. The same object while nothing changes.

        Holdings that have ended are told of all the same.
        """
        return self.accounts.usage() if self._tellers else self.accounts.ended()

    def hold(
        self,
        attributions: Mapping[str, Attribution],
        at: Instant,
        *,
        informed: bool,
        meant: Meant,
    ) -> None:
        """Note who holds what from a moment on.

        Args:
            attributions: by device uuid.
            at: the moment.
            informed: whether a source tells that.
            meant: tells what a pod's name meant before its uid was known.
        """
        self._owners.changed(attributions)
        self.accounts.hold(attributions, at, informed=informed, meant=meant)
        for uuid in [uuid for uuid in self._looked if uuid not in attributions]:
            del self._looked[uuid]
            self._feeder.pop(uuid, None)

    def tell_pods(self, pods: Iterable[Pod], meant: Meant) -> None:
        """Let those go on under their full names that were known by the name of a pod alone.

        Args:
            pods: of which a source tells, as they are shown.
            meant: tells what a pod's name meant before its uid was known.
        """
        for pod in pods:
            info = pod.info
            self.accounts.name_pod((info.namespace, info.name), info, meant)

    def take(self, envelope: Envelope, uses: tuple[DeviceUse, ...], places: Places) -> bool:
        """Take in looks; return whether any of them counts. Devices not known are passed over."""
        source, accounts = envelope.source, self.accounts
        news = source not in self._tellers
        self._tellers.add(source)
        self._silent_ns = None
        self._first = self._first or envelope.at
        if not self._begins(envelope.at):
            return news
        rank = {name: at for at, name in enumerate(self._sources.ranking())}
        for use in uses:
            device = places.find(use.device)
            if device not in accounts:
                continue
            if self._waited_at(use.at.mono_ns):
                self._again = True
                continue
            looked = self._looked.setdefault(device, {})
            looked[source] = use.at.mono_ns + use.good_for_ns
            if any(
                rank[other] < rank[source] and end >= envelope.at.mono_ns
                for other, end in looked.items()
            ):
                continue
            for before in accounts.nameless(device):
                container, pod = self._owners.find(PartialRef(uid=before[3]))
                if container is not None:
                    accounts.name(device, before, container, pod)
            processes = [self._process(one) for one in use.processes]
            if accounts.take(source, device, use, processes):
                self._feeder[device] = source
                news = True
        return news

    def begin(self, now: Instant) -> bool:
        """Return whether looks count from now on, after the first of them were passed over."""
        if self._start_ns is None:
            self._start_ns = now.mono_ns
        if not self._begun:
            if not self._sources.all_told:
                self._told_ns = None
            elif self._told_ns is None:
                self._told_ns = now.mono_ns
            return self._first is not None and self._begins(now)
        again, self._again = self._again, False
        return again

    def _waited_at(self, moment_ns: int) -> bool:
        """Whether a source had yet to speak at a moment since podgpu began.

        What a recording tells of the time before is not of that kind.
        """
        return (self._start_ns or 0) <= moment_ns < (self._told_ns or 0)

    def _begins(self, now: Instant) -> bool:
        if self._begun:
            return True
        first = self._first or now
        late = now.mono_ns - first.mono_ns >= _PATIENCE_NS
        self._begun = late or self._sources.all_told
        if self._begun and self._told_ns is None:
            self._told_ns = now.mono_ns
        return self._begun

    def remove(self, source: str, at: Instant) -> None:
        """Forget that a source looked. What it found stays in the accounts, but for memory."""
        if source not in self._tellers:
            return
        self._tellers.discard(source)
        for device, looked in self._looked.items():
            looked.pop(source, None)
            if self._feeder.get(device) == source:
                self.accounts.withdraw(device, at)
        if not self._tellers:
            self._silent_ns = at.mono_ns

    def expire(self, now: Instant) -> bool:
        """Let go of what is no longer good; return whether anything was."""
        silent_ns = self._silent_ns
        cleared = silent_ns is not None and now.mono_ns - silent_ns > _KEPT_NS
        if cleared:
            self._silent_ns = None
            self.accounts.clear(now.mono_ns)
        return self.accounts.expire(now) or cleared

    def _process(self, use: ProcessUse) -> Process:
        owner = use.owner
        rest = (use.kind != "", use.memory_bytes, use.busy_ns, use.kind == "mps")
        if owner is None:
            return Process(None, False, None, *rest)
        if not (owner.uid or owner.container_id):  # outside all pods
            return Process(None, True, None, *rest)
        container, pod = self._owners.find(owner)
        return Process(container, container is not None, pod, *rest)
