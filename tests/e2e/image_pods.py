"""Pods with podgpu's image on the node."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.image import REFERENCE
from tests.e2e.kube.api import Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import pod
from tests.e2e.processes import get, wait_until
from tests.fakes.nvml import FakeNvml

LEAST: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A security context without privileges."""

PORT = 9400
_DRIVER, _PLAYED = "/opt/driver", "/opt/played"
"""Folders in the container of the fake NVML library and of its scenario."""


def podgpu_pod(
    name: str,
    *words: str,
    fake: FakeNvml | None = None,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    folders: Mapping[str, str] | None = None,
    inside: str = "",
) -> Object:
    """Return a pod of the image that runs once, with a separate network namespace.

    Args:
        name: name of the pod.
        words: arguments, as in `args`.
        fake: the fake NVML library.
        command: replaces the image's entry point.
        env: environment variables.
        folders: host folders by path in the container, mounted read-only.
        inside: the working directory; empty for that of the image.
    """
    variables, mounts = dict(env or {}), dict(folders or {})
    if fake is not None:
        # As NVIDIA's container toolkit does: the library is in the loader's search path.
        variables |= {
            "LD_LIBRARY_PATH": _DRIVER,
            "FAKENVML_SCENARIO": f"{_PLAYED}/{fake.path.name}",
        }
        mounts |= {_DRIVER: str(fake.library_folder), _PLAYED: str(fake.path.parent)}
    main: Object = {
        "name": "main",
        "image": REFERENCE,
        "imagePullPolicy": "Never",
        "args": list(words),
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "securityContext": dict(LEAST),
        "volumeMounts": [
            {"name": f"host-{at}", "mountPath": path, "readOnly": True}
            for at, path in enumerate(mounts)
        ],
    }
    main |= {"command": list(command)} if command else {}
    main |= {"workingDir": inside} if inside else {}
    made = pod(name, main, restart="Never", grace=15)
    made["spec"]["hostNetwork"] = False
    made["spec"]["volumes"] = [
        {"name": f"host-{at}", "hostPath": {"path": path}}
        for at, path in enumerate(mounts.values())
    ]
    return made


def container_id(made: Object) -> str:
    """Return the runtime's id of a pod's only container, from the pod's status."""
    (status,) = made["status"]["containerStatuses"]
    found: str = status["containerID"].removeprefix("containerd://")
    return found


def execute(kube: Cluster, made: Object, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a pod's only container, as `kubectl exec` does."""
    return kube.containerd.execute(container_id(made), *command)


def page(made: Object, path: str = "/metrics") -> str:
    """Return a page of a pod; empty while the pod does not serve it."""
    try:
        answer = get(PORT, path, host=made["status"]["podIP"])
    except OSError:
        return ""
    return answer.body.decode() if answer.status == 200 else ""


def wait_page(kube: Cluster, made: Object, having: str) -> str:
    """Wait until a pod's metrics page has a line that matches, and return the page."""
    wanted = re.compile(having, re.MULTILINE)
    last = ""

    def fits() -> bool:
        nonlocal last
        last = page(made)
        return wanted.search(last) is not None

    try:
        wait_until(fits, having)
    except AssertionError as error:
        log = kube.pod_log(made["metadata"]["name"])
        raise AssertionError(f"{error}:\n{last[:2000]}\n{log[-3000:]}") from None
    return last
