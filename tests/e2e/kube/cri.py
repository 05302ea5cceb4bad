"""Create pods and containers directly in containerd, which takes only milliseconds.

The kubelet must be stopped meanwhile, because it removes containers that it did not create.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from tests.e2e.kube.images import IMAGE
from tests.e2e.kube.messages import Message, message, method
from tests.e2e.kube.pods import HOLD
from tests.e2e.processes import wait_until

_SERVICE = "runtime.v1.RuntimeService"
_SECONDS = 60.0


class Cri:
    """A connection to containerd; its pods are removed at the end."""

    def __init__(self, socket: Path, logs: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._logs = logs
        self._pods: dict[str, Message] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for pod in list(self._pods):
                self.remove_pod(pod)
        finally:
            self._channel.close()

    def run_pod(
        self, name: str, *, namespace: str = "ml", annotations: Mapping[str, str] | None = None
    ) -> str:
        """Run a pod with the uid `uid-NAME`, and return its sandbox id."""
        config = message("runtime.v1.PodSandboxConfig")(
            metadata={"name": name, "uid": f"uid-{name}", "namespace": namespace},
            log_directory=str(self._logs / f"{namespace}_{name}"),
            annotations=dict(annotations or {}),
            linux={"security_context": {"namespace_options": {"network": "NODE"}}},
        )
        pod = str(self._call("RunPodSandbox", config=config).pod_sandbox_id)
        self._pods[pod] = config
        return pod

    def create(
        self,
        pod: str,
        name: str = "main",
        *,
        env: Mapping[str, str] | None = None,
        devices: Sequence[Mapping[str, str]] = (),
        command: Sequence[str] = HOLD,
    ) -> str:
        """Create a container without starting it, and return its id."""
        config = message("runtime.v1.ContainerConfig")(
            metadata={"name": name},
            image={"image": IMAGE},
            command=command,
            envs=[{"key": key, "value": value} for key, value in (env or {}).items()],
            devices=devices,
            log_path=f"{name}.log",
        )
        made = self._call(
            "CreateContainer",
            pod_sandbox_id=pod,
            config=config,
            sandbox_config=self._pods[pod],
        )
        return str(made.container_id)

    def start(self, container: str) -> None:
        self._call("StartContainer", container_id=container)

    def run(self, pod: str, name: str = "main", **of: Any) -> str:
        """Create and start a container, and return its id."""
        made = self.create(pod, name, **of)
        self.start(made)
        return made

    def stop(self, container: str) -> None:
        self._call("StopContainer", container_id=container, timeout=1)

    def remove(self, container: str) -> None:
        """Remove a stopped container; containerd may take it for running for another moment."""
        wait_until(lambda: self._removed(container), f"removal of {container}")

    def _removed(self, container: str) -> bool:
        try:
            self._call("RemoveContainer", container_id=container)
        except grpc.RpcError as error:
            if "is still running" not in str(error):
                raise
            return False
        return True

    def remove_pod(self, pod: str) -> None:
        """Stop and remove a pod with its containers."""
        self._call("StopPodSandbox", pod_sandbox_id=pod)
        self._call("RemovePodSandbox", pod_sandbox_id=pod)
        del self._pods[pod]

    def _call(self, name: str, **fields: Any) -> Message:
        call = method(self._channel, _SERVICE, name)
        requests = {
            "StopPodSandbox": "PodSandboxRequest",
            "RemovePodSandbox": "PodSandboxRequest",
            "StartContainer": "ContainerRequest",
            "RemoveContainer": "ContainerRequest",
        }
        request = message(f"runtime.v1.{requests.get(name, f'{name}Request')}")(**fields)
        return call(request, timeout=_SECONDS)
