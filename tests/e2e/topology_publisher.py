"""A podgpu that writes its node's topology annotation, and the annotation as written."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.topology.node_annotation import KEY, Published, published
from tests.e2e.kube.api import Api
from tests.e2e.kube.apiserver import NODE
from tests.e2e.kube.cluster import Cluster
from tests.e2e.node import hold
from tests.e2e.podgpu import Podgpu
from tests.e2e.processes import wait_until
from tests.fakes.nvml import Scenario
from tests.fakes.nvml.topologies import islands

ACCOUNT = "podgpu-node"
SINK = "topology"
"""The sink's name."""

SETTLING = 1.0
MIN_INTERVAL = 1.0
REFRESH = 10.0
"""Seconds."""

ISLANDS = islands()
IDS = [gpu.uuid for gpu in ISLANDS.gpus]
"""The first four GPUs are connected by NVLink, and so are the last four."""

_OPTIONS = {"min_interval": f"{MIN_INTERVAL:g}s", "refresh": f"{REFRESH:g}s"}
_OFTEN = {"nvml": {"interval": "500ms", "slow_interval": "1s"}, "podresources": {"interval": "1s"}}


def annotations(api: Api, node: str) -> dict[str, str]:
    return dict(api.get("Node", node)["metadata"].get("annotations", {}))


def annotate(api: Api, node: str, value: str | None) -> None:
    """Replace a node's annotation; None removes it."""
    api.patch("Node", node, {"metadata": {"annotations": {KEY: value}}})


class Publisher(Podgpu):
    """A podgpu with two groups of four GPUs; a podlist.json or the kubelet names the holders.

    Args:
        folder: folder to create.
        kubeconfig: credentials for writing.
        node: the Node to annotate, and podgpu's node name.
        kubelet: whether the node's kubelet names the holders.
        options: further options of the sink; they override the short intervals.
    """

    def __init__(
        self,
        kube: Cluster,
        folder: Path,
        kubeconfig: Path,
        *,
        node: str = NODE,
        kubelet: bool = False,
        options: Mapping[str, str] | None = None,
        scenario: Scenario = ISLANDS,
    ) -> None:
        folder.mkdir()
        super().__init__(folder, scenario)
        self.node = node
        self._api = kube.api
        self._podlist = folder / "podlist.json"
        self.hold({})
        holders: dict[str, Any] = {"kind": "podlist", "path": str(self._podlist)}
        if kubelet:
            socket = str(kube.pod_resources_socket)
            holders = {"kind": "podresources", "sockets": [socket], **_OFTEN["podresources"]}
        self._sources = {"gpus": {"kind": "nvml", **_OFTEN["nvml"]}, "holders": holders}
        self._sink = {"kind": "node", "kubeconfig": str(kubeconfig), **_OPTIONS, **(options or {})}
        self.configure(node, self._sources, {SINK: self._sink})

    def change(self, **options: str) -> None:
        """Change options of the sink; they apply from the next start."""
        self._sink |= options
        self.configure(self.node, self._sources, {SINK: self._sink})

    def hold(self, held: Mapping[str, Iterable[str]]) -> None:
        """Write the podlist.json: exactly these pods hold these GPUs."""
        hold(self._podlist, held)

    def annotation(self) -> str | None:
        """Return the annotation of the Node."""
        return annotations(self._api, self.node).get(KEY)

    def published(self) -> Published | None:
        """Return the decoded annotation; None if it is absent or invalid."""
        try:
            return published(self.annotation() or "")
        except ValueError:
            return None

    def free(self) -> list[str] | None:
        """Return the uuids of the free GPUs according to the annotation, in order."""
        return free(self.published())

    def wait_free(self, expected: Iterable[str], seconds: float = 30) -> None:
        """Wait until exactly these GPUs are free according to the annotation."""
        wanted = sorted(expected, key=IDS.index)
        try:
            wait_until(lambda: self.free() == wanted, "the free GPUs", seconds)
        except AssertionError as error:
            found = (self.free(), self.annotation())
            raise AssertionError(
                f"{error}: {wanted} wanted, {found} found; {self.output()[-2000:]}"
            ) from None

    def wait_known(self, expected: Iterable[str]) -> None:
        """Wait until exactly these GPUs are free according to podgpu's `/topology`."""
        wanted = sorted(expected, key=IDS.index)

        def known() -> bool:
            gpus = self.topology()["gpus"]
            return [gpu["uuid"] for gpu in gpus if gpu["state"] == "free"] == wanted

        wait_until(known, f"{wanted} are free")

    def agrees(self) -> bool:
        """Return whether the annotation has the same content as `/topology`."""
        made = json.loads(self.annotation() or "{}")
        served = self.topology()
        return {key: made[key] for key in made if key not in ("at", "refresh")} == served

    def overwritten(self) -> float | None:
        """Return how often it has overwritten a value of another writer."""
        return self.value(
            "podgpu_sink_errors_total", sink=SINK, operation="overwritten", reason="foreign"
        )

    def up(self) -> float | None:
        return self.value("podgpu_sink_up", sink=SINK)

    def wait_up(self, value: int, seconds: float = 30) -> None:
        wait_until(lambda: self.up() == value, f"podgpu_sink_up is {value}", seconds)


def free(annotation: Published | None) -> list[str] | None:
    if annotation is None or annotation.free is None:
        return None
    cards = annotation.topology.cards
    return [card.uuid for bit, card in enumerate(cards) if annotation.free >> bit & 1]
