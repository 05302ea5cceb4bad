"""Running containers by source, and the claims that come with them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.model import Claim, ContainersReplaced, RunningContainer


@dataclass(slots=True)
class _SourceContainers:
    """The containers that one source reports."""

    good_for_ns: int = 0
    containers: dict[str, RunningContainer] = field(default_factory=dict)


class ContainerTable:
    """Containers by source and container id."""

    def __init__(self) -> None:
        self._by_source: dict[str, _SourceContainers] = {}

    @property
    def is_reported(self) -> bool:
        """Whether a source reports containers, and has not been silent for too long."""
        return bool(self._by_source)

    def replace(self, source: str, event: ContainersReplaced) -> bool:
        """Replace all containers of a source; return whether anything changed."""
        reported = self._by_source.get(source)
        containers = {container.subject.container_id: container for container in event.containers}
        if reported is not None and reported.containers == containers:
            reported.good_for_ns = event.good_for_ns
            return False
        self._by_source[source] = _SourceContainers(event.good_for_ns, containers)
        return True

    def start(self, source: str, container: RunningContainer) -> bool:
        """Add or change a container; return whether anything changed."""
        reported = self._by_source.get(source)
        key = container.subject.container_id
        if reported is None or reported.containers.get(key) == container:
            return False
        reported.containers[key] = container
        return True

    def stop(self, source: str, container_id: str) -> RunningContainer | None:
        """Remove a container and return it."""
        reported = self._by_source.get(source)
        return None if reported is None else reported.containers.pop(container_id, None)

    def find(self, container_id: str) -> RunningContainer | None:
        """Return a running container by its id."""
        for reported in self._by_source.values():
            if (found := reported.containers.get(container_id)) is not None:
                return found
        return None

    def remove(self, source: str) -> None:
        """Remove all containers of a source."""
        self._by_source.pop(source, None)

    def expire(self, source: str, silent_ns: int) -> bool:
        """Remove a source's containers if it was silent for too long; return whether it was."""
        reported = self._by_source.get(source)
        if reported is None or silent_ns <= reported.good_for_ns:
            return False
        self.remove(source)
        return True

    def claims(self, source: str) -> Iterator[Claim]:
        """Yield the claims of a source's containers."""
        if (reported := self._by_source.get(source)) is not None:
            for container in reported.containers.values():
                yield from container.claims

    def pods(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield name and uid of each container's pod."""
        for reported in self._by_source.values():
            for container in reported.containers.values():
                subject = container.subject
                if subject.pod and subject.uid:
                    yield (subject.namespace, subject.pod), subject.uid
