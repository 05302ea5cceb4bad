"""Jobs of batch systems by source, and which devices they use."""

from collections.abc import Iterable, Mapping

from pipeline.model import Attribution, JobsReplaced


class JobTable:
    """Keeps the report of each source about jobs. Reports of several sources are combined."""

    def __init__(self) -> None:
        self._by_source: dict[str, JobsReplaced] = {}
        self._confirmed_ns: dict[str, int] = {}

    def replace(self, source: str, event: JobsReplaced, at_ns: int) -> bool:
        """Replace the report of a source; return whether its jobs changed."""
        before = self._by_source.get(source)
        self._by_source[source] = event
        self._confirmed_ns[source] = at_ns
        return before is None or before.devices != event.devices

    def remove(self, source: str) -> None:
        """Remove the report of a source."""
        self._by_source.pop(source, None)
        self._confirmed_ns.pop(source, None)

    def expire(self, now_ns: int) -> bool:
        """Remove reports that were not confirmed for too long; return whether there were any."""
        expired = [
            source
            for source, event in self._by_source.items()
            if event.good_for_ns < now_ns - self._confirmed_ns[source]
        ]
        for source in expired:
            self.remove(source)
        return bool(expired)

    def by_device(
        self, ranking: Iterable[str], attributions: Mapping[str, Attribution]
    ) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the jobs of each device that has any, by device uuid.

        A report about a whole GPU does not apply to its MIG instances.

        Args:
            ranking: the sources, in the order of the configuration.
            attributions: all devices, by uuid.
        """
        jobs: dict[tuple[int | None, int | None], dict[str, None]] = {}
        for source in ranking:
            event = self._by_source.get(source)
            for one in event.devices if event is not None else ():
                jobs.setdefault((one.gpu, one.gpu_instance), {}).update(dict.fromkeys(one.jobs))
        if not jobs:
            return {}
        found: dict[str, tuple[str, ...]] = {}
        for uuid, known in attributions.items():
            mig = known.device.mig
            place = known.device.index, mig.gpu_instance_id if mig is not None else None
            # Another GPU may have taken the index of one that is gone.
            if known.present and (ids := jobs.get(place)):
                found[uuid] = tuple(ids)
        return found
