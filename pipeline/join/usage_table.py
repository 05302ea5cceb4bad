"""Usage samples: selects the source of each device and passes its samples to the accounts."""

from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.join.mig_placement import MigPlacements
from pipeline.join.process_owners import ProcessOwners
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
from pipeline.usage import NameReferredTo, ProcessSample, UsageAccounts

_RETENTION_NS: Final = 300 * NS
"""How long the accounts are kept when no source is left that samples usage."""

_STARTUP_WAIT_NS: Final = 10 * NS
"""How long samples are ignored at the start, while a source has not reported yet: an account under
a part of a container's name would end when another source reports the rest of the name."""


class UsageTable:
    """Keeps the usage accounts.

    If two sources sample a device, the samples of the source that is earlier in the configuration
    are used while its last sample is valid.

    Attributes:
        accounts: the accounts of all devices.

    Args:
        sources: state of each source.
        owners: finds the container that a process belongs to.
        run: identifies this run of podgpu; prefix of the ids of accounts.
    """

    def __init__(self, sources: SourceTable, owners: ProcessOwners, run: str = "") -> None:
        self.accounts = UsageAccounts(run)
        self._sources = sources
        self._owners = owners
        self._sampled_until: dict[str, dict[str, int]] = {}
        self._sampling_source: dict[str, str] = {}
        self._reporting_sources: set[str] = set()
        self._silent_ns: int | None = None
        self._first: Instant | None = None
        self._started = False
        self._start_ns: int | None = None
        self._all_reported_ns: int | None = None
        self._resample_needed = False

    @property
    def usage(self) -> Usage | None:
        """Usage of all devices; the same object while it does not change.

        If no source samples usage, only the final holdings; None if there are none.
        """
        return self.accounts.usage() if self._reporting_sources else self.accounts.ended()

    def update_holders(
        self,
        attributions: Mapping[str, Attribution],
        at: Instant,
        *,
        holders_known: bool,
        referred_to: NameReferredTo,
    ) -> None:
        """Record who holds the devices from a moment on.

        Args:
            attributions: the attributions of all devices, by uuid.
            at: the moment.
            holders_known: whether all holders are known.
            referred_to: returns whether a pod's name meant the pod with a uid at an earlier moment.
        """
        self._owners.update_holders(attributions)
        self.accounts.update_holders(
            attributions, at, holders_known=holders_known, referred_to=referred_to
        )
        for uuid in [uuid for uuid in self._sampled_until if uuid not in attributions]:
            del self._sampled_until[uuid]
            self._sampling_source.pop(uuid, None)

    def update_pods(self, pods: Iterable[Pod], referred_to: NameReferredTo) -> None:
        """Continue accounts that know a pod only by name under its full name, with the uid.

        Args:
            pods: the pods that a source reports, with the uids that the node uses.
            referred_to: returns whether a name belonged to the pod with a uid at a given time.
        """
        for pod in pods:
            self.accounts.complete_pod_identity(pod.info, referred_to)

    def add_samples(
        self, envelope: Envelope, uses: tuple[DeviceUse, ...], placements: MigPlacements
    ) -> bool:
        """Add usage samples; return whether anything changed. Unknown devices are ignored."""
        source, accounts = envelope.source, self.accounts
        changed = source not in self._reporting_sources
        self._reporting_sources.add(source)
        self._silent_ns = None
        self._first = self._first or envelope.at
        if not self._has_started(envelope.at):
            return changed
        rank = {name: at for at, name in enumerate(self._sources.ranking)}
        for use in uses:
            device = placements.canonical_uuid(use.device)
            if device not in accounts:
                continue
            if (self._start_ns or 0) <= use.at.mono_ns < (self._all_reported_ns or 0):
                # A source had not reported yet. Samples of a recording may be older.
                self._resample_needed = True
                continue
            valid_until = self._sampled_until.setdefault(device, {})
            valid_until[source] = use.at.mono_ns + use.good_for_ns
            if any(
                rank[other] < rank[source] and end >= envelope.at.mono_ns
                for other, end in valid_until.items()
            ):
                continue
            for before in accounts.unnamed_containers(device):
                container, pod = self._owners.find(PartialRef(uid=before[3]))
                if container is not None:
                    accounts.set_container_name(device, before, container, pod)
            processes = [self._process_sample(one) for one in use.processes]
            if accounts.add_sample(source, device, use, processes):
                self._sampling_source[device] = source
                changed = True
        return changed

    def started_counting(self, now: Instant) -> bool:
        """Return whether devices need a new sample now, because earlier samples were ignored."""
        if self._start_ns is None:
            self._start_ns = now.mono_ns
        if not self._started:
            return self._has_started(now)
        is_needed, self._resample_needed = self._resample_needed, False
        return is_needed

    def _has_started(self, now: Instant) -> bool:
        """Whether samples count: all sources have reported, or were waited for long enough."""
        if not self._started:
            first, all_reported = self._first, self._sources.all_reported
            has_waited = first is not None and now.mono_ns - first.mono_ns >= _STARTUP_WAIT_NS
            self._started = has_waited or (first is not None and all_reported)
            if all_reported or self._started:
                self._all_reported_ns = self._all_reported_ns or now.mono_ns
            else:
                self._all_reported_ns = None
        return self._started

    def remove(self, source: str, at: Instant) -> None:
        """Remove a source. Its samples stay in the accounts, except for memory."""
        if source not in self._reporting_sources:
            return
        self._reporting_sources.discard(source)
        for device, valid_until in self._sampled_until.items():
            valid_until.pop(source, None)
            if self._sampling_source.get(device) == source:
                self.accounts.forget_present(device, at)
        if not self._reporting_sources:
            self._silent_ns = at.mono_ns

    def expire(self, now: Instant) -> bool:
        """Discard what has expired; return whether anything changed.

        Clears all accounts if for `_RETENTION_NS` there was no source that reports usage.
        """
        silent_ns = self._silent_ns
        cleared = silent_ns is not None and now.mono_ns - silent_ns > _RETENTION_NS
        if cleared:
            self._silent_ns = None
            self.accounts.clear(now.mono_ns)
        return self.accounts.expire(now) or cleared

    def _process_sample(self, use: ProcessUse) -> ProcessSample:
        owner = use.owner
        rest = (use.kind != "", use.memory_bytes, use.busy_ns, use.kind == "mps")
        if owner is None:
            return ProcessSample(None, False, None, *rest)
        if not (owner.uid or owner.container_id):  # a process outside all pods
            return ProcessSample(None, True, None, *rest)
        container, pod = self._owners.find(owner)
        # A job or a container that no source reports is certainly none of the known holders.
        return ProcessSample(container, container is not None or owner.kind != "pod", pod, *rest)
