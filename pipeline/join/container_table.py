"""Running containers and jobs by source, and the claims that come with them."""

from collections.abc import Iterator, Set

from pipeline.join.pod_table import IdentifiedContainer
from pipeline.model import Claim, ContainersReplaced, PartialRef, Pod, RunningContainer


class ContainerTable:
    """Containers and jobs by source and container id."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, RunningContainer]] = {}
        self._good_for_ns: dict[str, int] = {}

    @property
    def reporting_sources(self) -> Set[str]:
        """The sources that report containers, and have not been silent for too long."""
        return self._by_source.keys()

    def replace(self, source: str, event: ContainersReplaced) -> bool:
        """Replace all containers of a source; return whether anything changed."""
        before = self._by_source.get(source)
        self._by_source[source] = {one.subject.container_id: one for one in event.containers}
        self._good_for_ns[source] = event.good_for_ns
        return before != self._by_source[source]

    def start(self, source: str, container: RunningContainer) -> bool:
        """Add or change a container; return whether anything changed.

        It is ignored if the source has no valid list of containers.
        """
        reported, key = self._by_source.get(source), container.subject.container_id
        if reported is None or reported.get(key) == container:
            return False
        reported[key] = container
        return True

    def stop(self, source: str, container_id: str) -> RunningContainer | None:
        """Remove a container and return it; None if the source did not report it."""
        return self._by_source.get(source, {}).pop(container_id, None)

    def find(self, container_id: str) -> RunningContainer | None:
        """Return a running container by its id; None if no source reports it."""
        found = (reported.get(container_id) for reported in self._by_source.values())
        return next((one for one in found if one is not None), None)

    def identify(self, source: str, ref: PartialRef) -> IdentifiedContainer:
        """Return the job, or the container without a pod, that a claim means.

        It is described as a pod that has its name and its start, so that the rules for pods apply.

        Args:
            source: the source of the claim.
            ref: the job or container, as the source reports it.
        """
        subject = PartialRef(ref.namespace, ref.pod, ref.container, ref.uid)
        running = self._by_source.get(source, {}).get(ref.container_id)
        if running is None or running.info is None:
            return IdentifiedContainer(subject, None)
        return IdentifiedContainer(subject, Pod(running.info, running.started))

    def remove(self, source: str) -> None:
        """Remove all containers of a source."""
        self._by_source.pop(source, None)
        self._good_for_ns.pop(source, None)

    def expire(self, source: str, silent_ns: int) -> bool:
        """Remove a source's containers if it was silent for too long; return whether it was."""
        if source not in self._by_source or silent_ns <= self._good_for_ns[source]:
            return False
        self.remove(source)
        return True

    def claims(self, source: str) -> Iterator[Claim]:
        """Yield the claims of a source's containers."""
        for container in self._by_source.get(source, {}).values():
            yield from container.claims

    def pods(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield name and uid of each container's pod, if both are known."""
        for reported in self._by_source.values():
            for subject in [container.subject for container in reported.values()]:
                if subject.pod and subject.uid and subject.kind == "pod":
                    yield (subject.namespace, subject.pod), subject.uid
