"""The complete cluster: it starts and stops all programs, and tests control it."""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e import debian, peers
from tests.e2e.kube import access, cgroups, folders, leftovers, nodes, sysctls
from tests.e2e.kube.api import Api, Object
from tests.e2e.kube.apiserver import NODE, ApiServer
from tests.e2e.kube.background import Background
from tests.e2e.kube.containerd import Containerd
from tests.e2e.kube.controllers import Controllers
from tests.e2e.kube.daemon import Daemon
from tests.e2e.kube.dra import DraDriver, remove_claim
from tests.e2e.kube.etcd import Etcd
from tests.e2e.kube.kubelet import Kubelet
from tests.e2e.kube.plugin import DevicePlugin, Form, by_env
from tests.e2e.kube.scheduler import Scheduler
from tests.e2e.processes import wait_until


class Cluster:
    """A cluster with the node `node1`. Only one can run on a machine."""

    node = NODE
    state = folders.STATE
    logs = folders.LOGS
    cdi = folders.CDI
    static_pods = folders.STATIC_PODS
    pod_logs = folders.POD_LOGS
    device_plugins = folders.DEVICE_PLUGINS
    checkpoint = folders.CHECKPOINT
    pod_resources_socket = folders.POD_RESOURCES_SOCKET
    cri_socket = folders.CRI_SOCKET
    nri_socket = folders.NRI_SOCKET

    def __init__(self, *, standalone: bool = False) -> None:
        """With `standalone`, the kubelet has no API server, and so only static pods."""
        programs = peers.build()
        self.standalone = standalone
        self.containerd = Containerd(programs, debian.runtime())
        self.etcd = Etcd(programs)
        self.apiserver = ApiServer(programs, self.etcd)
        self.scheduler = Scheduler(programs, self.apiserver)
        self.controllers = Controllers(programs, self.apiserver)
        self.kubelet = Kubelet(programs, None if standalone else self.apiserver)
        self._plugins: list[DevicePlugin | DraDriver] = []
        self._outages = 0
        self._ends = ExitStack()

    # Start and stop.

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the cluster; wait while another test run has one."""
        lock = self._ends.enter_context(folders.LOCK.open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            leftovers.clear()
            shutil.rmtree(folders.LOGS, ignore_errors=True)
            folders.make()
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        # The stop is in the reverse order.
        self._ends.callback(leftovers.clear)
        sysctls.remember()
        cgroups.make_room()
        self._ends.callback(self.containerd.stop)
        self.containerd.launch()
        if not self.standalone:
            self._ends.callback(self.etcd.stop)
            self.etcd.start()
            self._ends.callback(self.apiserver.stop)
            self.apiserver.launch()
        self.containerd.wait_ready()
        self.containerd.load_image()
        if not self.standalone:
            self.apiserver.wait_ready()
        self._ends.callback(self.containerd.kill_tasks)
        self._ends.callback(self.kubelet.stop)
        self.kubelet.start()
        self._background = Background()
        self._ends.callback(self._background.stop)
        if not self.standalone:
            self._ends.callback(self.scheduler.stop)
            self.wait_node_ready()
        self._ends.callback(self.tidy)

    def _started(self) -> list[Daemon]:
        if self.standalone:
            return [self.containerd, self.kubelet]
        return [self.containerd, self.etcd, self.apiserver, self.kubelet]

    def stop(self) -> None:
        self._ends.close()

    def wait_node_ready(self) -> None:
        wait_until(self._node_ready, f"{NODE} is ready")

    def _node_ready(self) -> bool:
        found = self.api.find("Node", NODE)
        conditions = found["status"].get("conditions", []) if found else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def ensure_scheduler(self) -> None:
        """Start the scheduler, which most tests do not need.

        Restart it after an outage of the API server, because it reconnects only after up to half a
        minute.
        """
        outages = self.apiserver.outages + self.etcd.outages
        if self.scheduler.running and outages != self._outages:
            self.scheduler.stop()
        if not self.scheduler.running:
            self.scheduler.start()
        self._outages = outages

    def schedule_with(self, *extenders: Object) -> None:
        """Restart the scheduler with these extenders; `tidy` stops it."""
        self.scheduler.stop()
        self.scheduler.extenders = extenders
        self.scheduler.start()

    def tidy(self) -> None:
        """Remove pods, claims, nodes, plugins and accounts of a test, and start programs that it
        stopped."""
        for daemon in self._started():
            daemon.thaw()
            if not daemon.running:
                daemon.start()
        if self.scheduler.extenders:
            self.scheduler.stop()
            self.scheduler.extenders = ()
        if not self.standalone:
            nodes.remove_all(self.api)
        self.remove_pods()
        for plugin in reversed(self._plugins):
            plugin.stop()
        self._plugins.clear()
        for spec in folders.CDI.glob("*.json"):
            spec.unlink()
        if not self.standalone:
            access.remove_all(self.api)

    # Pods.

    @property
    def api(self) -> Api:
        """The API server with all permissions."""
        return self.apiserver.api

    @property
    def admin_kubeconfig(self) -> Path:
        return self.apiserver.kubeconfig("admin")

    def create(self, pod: Object) -> Object:
        """Create a pod, and its namespace if it is missing."""
        access.add_namespace(self.api, pod["metadata"]["namespace"])
        return self.api.create(pod)

    def run(self, pod: Object, *phases: str) -> Object:
        """Create a pod and wait until it runs or is in one of these phases; return it."""
        self.create(pod)
        meta = pod["metadata"]
        return self.api.wait_phase(
            meta["name"], *(phases or ("Running",)), namespace=meta["namespace"]
        )

    def remove(self, name: str, namespace: str = "default") -> None:
        """Delete a pod and wait until it is gone from the node and the API."""
        self.api.delete("Pod", name, namespace)
        self.api.wait_gone("Pod", name, namespace)

    def remove_pods(self) -> None:
        """Remove all pods and claims, and wait until no container is left."""
        for manifest in folders.STATIC_PODS.glob("*.json"):
            manifest.unlink()
        if not self.standalone:
            for pod in self.api.list("Pod"):
                meta = pod["metadata"]
                self.api.delete("Pod", meta["name"], meta["namespace"], grace=1)
            wait_until(lambda: not self.api.list("Pod"), "no pod is left")
            for claim in self.api.list("ResourceClaim"):
                remove_claim(self.api, claim["metadata"]["name"], claim["metadata"]["namespace"])
        wait_until(lambda: not self.containerd.tasks(), "no container is left", seconds=60)

    def add_static_pod(self, pod: Object) -> str:
        """Write a static pod's manifest and return the name of the mirror pod."""
        name: str = pod["metadata"]["name"]
        new = folders.STATIC_PODS / f".{name}.new"
        new.write_text(json.dumps(pod))
        new.replace(self._manifest(name))
        return f"{name}-{NODE}"

    def remove_static_pod(self, name: str) -> None:
        self._manifest(name).unlink()

    def _manifest(self, name: str) -> Path:
        return folders.STATIC_PODS / f"{name}.json"

    def pod_log(self, name: str, container: str = "main", namespace: str = "default") -> str:
        """Return the log of a container, including its restarts."""
        files = folders.POD_LOGS.glob(f"{namespace}_{name}_*/{container}/*.log")
        lines = [line for file in sorted(files) for line in file.read_text().splitlines()]
        # Each line begins with the time, the stream and a tag.
        return "".join(f"{line.split(' ', 3)[3]}\n" for line in lines)

    # Devices.

    def plugin(
        self,
        ids: Iterable[str],
        *,
        resource: str = "nvidia.com/gpu",
        numa: Mapping[str, int] | None = None,
        form: Form = by_env,
        substitute: Callable[[Sequence[str]], Sequence[str]] | None = None,
    ) -> DevicePlugin:
        """Start a device plugin and wait until its devices are allocatable; `tidy` stops it."""
        made = DevicePlugin(
            self._background, resource, ids, numa=numa, form=form, substitute=substitute
        )
        self._plugins.append(made)
        made.start()
        self.wait_allocatable(resource, len(made.healthy))
        return made

    def wait_allocatable(self, resource: str, count: int) -> None:
        """Wait until the node has this many allocatable devices, if there is an API server."""
        if self.standalone:
            return

        def reached() -> bool:
            status = self.api.get("Node", NODE)["status"]
            return int(status["allocatable"].get(resource, 0)) == count

        wait_until(reached, f"{NODE} has {count} {resource}")

    def dra_driver(self, devices: Mapping[str, str], name: str = "gpu.nvidia.com") -> DraDriver:
        """Start a DRA driver and the scheduler; `tidy` stops the driver.

        `devices` has uuids by device name.
        """
        self.ensure_scheduler()
        made = DraDriver(self._background, self.api, devices, name=name)
        self._plugins.append(made)
        made.start()
        return made
