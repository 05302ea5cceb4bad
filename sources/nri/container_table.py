"""The running containers, written by the connection's thread and read by the event loop.

Neither side waits for the other. Of the changes that the event loop has not taken yet, the newest
of each container is kept. All tables are limited in size.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from pipeline.allocations.device_injection import Injection, InjectionMethod
from pipeline.base.bounded_dict import set_last
from pipeline.model import Claim, Evidence, Instant, Origin, PartialRef, RunningContainer
from pipeline.model.plugin_ids import MAX_CLAIMED_DEVICES
from sources.nri.mux import ConnectionLostError
from sources.nri.parsers import STOPPED, Container, Pod, if_plausible, plausible

MAX_CONTAINERS: Final = 10_000
"""Limit for containers, for pods, and for changes that wait. A node runs some hundred."""

_MAX_STOPPED: Final = 4096
"""How many ended containers and pods are remembered: the end of a short-lived container may be
reported before its start."""


_MAX_WARNINGS: Final = 1024
"""How many keys of warnings are remembered. After that, the oldest may be logged again."""

_ORIGINS: Final[dict[InjectionMethod, Origin]] = {
    "cdi": Origin(Evidence.RUNTIME_CDI, "CDI names"),
    "mounts": Origin(Evidence.RUNTIME_ENV, "mounts of nvidia-container-devices"),
    "env": Origin(Evidence.RUNTIME_ENV, "NVIDIA_VISIBLE_DEVICES"),
    "nodes": Origin(Evidence.RUNTIME_NODES, "device nodes"),
}


def claims(
    pod: Pod, container: Container, subject: PartialRef, since: Instant | None
) -> tuple[Claim, ...]:
    """Return claims for the GPUs that a container was given or requests by name.

    An annotation that the pod has too is ignored, because the runtime does not report what a pod
    requests. CRI-O copies a pod's annotations to its containers.
    """
    by_name = container.gpus_by_name
    cdi_ids = list(by_name.devices) if by_name is not None and by_name.method == "cdi" else []
    for key, devices in container.gpus_by_annotation:
        if key not in pod.annotated:
            cdi_ids += devices
    if cdi_ids:
        by_name = if_plausible(Injection("cdi", tuple(dict.fromkeys(cdi_ids))))
    by_node = None if pod.sees_all else container.gpus_by_node
    return tuple(
        Claim(subject, injection.devices, None, since, _ORIGINS[injection.method])
        for injection in (by_name, by_node)
        if injection is not None
    )


class ContainerChanges(NamedTuple):
    """What the event loop has not processed yet; it processes the changes before the list.

    Attributes:
        changes: new and changed containers, by the runtime's id; None for containers that ended.
        full_list: all containers after these changes; None if no list was requested or completed.
        warnings: messages for the log.
    """

    changes: dict[str, RunningContainer | None]
    full_list: tuple[RunningContainer, ...] | None
    warnings: list[str]


class ContainerTable:
    """The containers that the runtime has reported on one connection, and the changes to process.

    Args:
        moment: function that converts Unix time in nanoseconds to an instant.
    """

    def __init__(self, moment: Callable[[int], Instant]) -> None:
        self._moment = moment
        self._lock = threading.Lock()
        self._running: dict[str, RunningContainer] = {}
        self._sandbox_of: dict[str, str] = {}
        self._devices = 0
        self._stopped: dict[str, None] = {}
        self._pods: dict[str, Pod] = {}
        self._listed: dict[str, Container] | None = None
        self._list_due = False
        # None until the event loop has taken a list, which includes all earlier changes.
        self._changes: dict[str, RunningContainer | None] | None = None
        self._warned: dict[str, None] = {}
        self._warnings: list[str] = []

    # Methods for the connection's thread.

    def add_listed(self, pods: dict[str, Pod], containers: dict[str, Container]) -> None:
        """Add a part of the runtime's list. The first part removes all known containers.

        Raises:
            ConnectionLostError: there are more than `MAX_CONTAINERS` pods or containers.
        """
        with self._lock:
            if self._listed is None:
                self._listed = {}
                self._running.clear()
                self._sandbox_of.clear()
                self._devices = 0
                self._list_due, self._changes = False, None
            self._pods |= pods
            self._listed |= containers
            if max(len(self._pods), len(self._listed)) > MAX_CONTAINERS:
                raise ConnectionLostError(
                    f"the runtime listed more than {MAX_CONTAINERS} pods or containers; podgpu "
                    "supports no more"
                )

    def complete_list(self) -> None:
        """Use the list. A container that was reported in the meantime replaces its list entry."""
        with self._lock:
            for container in (self._listed or {}).values():
                pod = self._pods.get(container.sandbox)
                reported = self._running.get(container.id)
                newer = reported is not None and (reported.pid is not None or container.pid is None)
                if pod is not None and container.state != STOPPED and not newer:
                    self._put(pod, container)
            self._listed = None
            self._pods = {}
            self._list_due = True

    def container_started(self, pod: Pod, container: Container) -> None:
        """Add or update a container that was created or has started.

        A container that has stopped is removed or stays absent.

        Raises:
            ConnectionLostError: there are more than `MAX_CONTAINERS` containers or changes.
        """
        with self._lock:
            if container.state == STOPPED:
                self._end(container.id)
            else:
                self._put(pod, container)

    def container_stopped(self, container_id: str) -> None:
        """Remove a container if it is known; a later report that it runs is ignored."""
        with self._lock:
            self._end(container_id)

    def pod_stopped(self, sandbox: str) -> None:
        """Remove all containers of a pod; later reports about the pod's containers are ignored."""
        with self._lock:
            self._note_stopped(sandbox)
            for container_id in [i for i, of in self._sandbox_of.items() if of == sandbox]:
                self._end(container_id)

    def warn(self, key: str, text: str) -> None:
        """Add a warning for the log, unless there was one with this key."""
        with self._lock:
            self._warn(key, text)

    # Methods for the event loop.

    def request_list(self) -> None:
        """Include all containers in the next changes, if the event loop has taken a list before."""
        with self._lock:
            self._list_due = self._list_due or self._changes is not None

    def take_changes(self) -> ContainerChanges:
        """Return changes and warnings since the last call, and all running containers if due."""
        with self._lock:
            full_list = tuple(self._running.values()) if self._list_due else None
            taken = ContainerChanges(self._changes or {}, full_list, self._warnings)
            if full_list is not None or self._changes is not None:
                self._changes = {}
            self._list_due, self._warnings = False, []
        return taken

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned and len(self._warnings) < _MAX_WARNINGS:
            set_last(self._warned, key, None, _MAX_WARNINGS)
            self._warnings.append(text)

    def _put(self, pod: Pod, container: Container) -> None:
        key = container.id
        if key in self._stopped or container.sandbox in self._stopped:
            return
        before = self._running.get(key)
        running = self._describe(pod, container)
        if running == before:
            return
        added = _device_count(running) - _device_count(before)
        if self._devices + added > MAX_CLAIMED_DEVICES:
            text = (
                f"containers hold more than {MAX_CLAIMED_DEVICES} devices; podgpu ignores further "
                "claims"
            )
            self._warn("", text)
            running, added = replace(running, claims=before.claims if before else ()), 0
        self._devices += added
        self._running[key] = running
        self._sandbox_of[key] = container.sandbox
        self._change(key, running)
        if len(self._running) > MAX_CONTAINERS:
            raise ConnectionLostError(f"the runtime reported more than {MAX_CONTAINERS} containers")

    def _describe(self, pod: Pod, container: Container) -> RunningContainer:
        namespace, name = sys.intern(pod.namespace), sys.intern(container.name)
        subject = PartialRef(namespace, pod.name, name, pod.uid, container.id)
        created_ns = container.created_ns or container.started_ns
        return RunningContainer(
            subject,
            container.pid,
            container.cgroup,
            self._moment(container.started_ns) if container.started_ns else None,
            claims(pod, container, subject, self._moment(created_ns) if created_ns else None),
        )

    def _end(self, key: str) -> None:
        self._note_stopped(key)
        self._sandbox_of.pop(key, None)
        running = self._running.pop(key, None)
        if running is not None:
            self._devices -= _device_count(running)
            self._change(key, None)

    def _change(self, key: str, running: RunningContainer | None) -> None:
        if self._changes is None:
            return
        self._changes.pop(key, None)  # keep the order of the newest changes
        self._changes[key] = running
        if len(self._changes) > MAX_CONTAINERS:
            raise ConnectionLostError(
                f"more than {MAX_CONTAINERS} changes of containers wait for podgpu: check the CPU "
                "load of the node"
            )

    def _note_stopped(self, key: str) -> None:
        if plausible(key):
            set_last(self._stopped, key, None, _MAX_STOPPED)


def _device_count(running: RunningContainer | None) -> int:
    """Return how many devices the claims of a container name."""
    return sum(len(claim.devices) for claim in running.claims) if running is not None else 0
