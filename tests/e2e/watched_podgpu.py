"""A podgpu on a real Kubernetes node, and a thread that records all holders that it shows."""

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e import documented
from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.podgpu import Podgpu, Series, series
from tests.e2e.processes import get, wait_until
from tests.fakes.nvml import Scenario

ALL = ("podresources", "pods", "checkpoint")
ACCOUNT = "podgpu"
RULES = tuple(documented.rules("sources/pods.md"))
OFTEN: Mapping[str, Mapping[str, str]] = {
    "nvml": {"interval": "500ms", "slow_interval": "1s"},
    "podresources": {"interval": "1s"},
    "checkpoint": {"interval": "1s"},
}
"""Options by kind of source: short intervals."""
_LOOK = 0.02


class Owner(NamedTuple):
    """The holder of a device according to the page; empty fields are unknown."""

    pod: str
    container: str = "main"
    uid: str = ""
    namespace: str = "default"


class Seen(NamedTuple):
    """A holder of a device, with source and evidence."""

    device: str
    owner: Owner
    source: str
    evidence: str


@dataclass(slots=True)
class HolderRecorder:
    """Scrapes continuously, and records each changed set of holders."""

    port: int
    history: list[tuple[float, frozenset[Seen]]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._stop.wait(_LOOK):
            try:
                answer = get(self.port, "/metrics")
            except OSError:  # it does not run
                continue
            if answer.status == HTTPStatus.NOT_FOUND:  # it is stopping, and the page ends first
                continue
            assert answer.status == HTTPStatus.OK
            now = holders(series(answer))
            if not self.history or self.history[-1][1] != now:
                self.history.append((time.monotonic(), now))

    def end(self) -> None:
        self._stop.set()

    def wrong_holders(self, true: Iterable[tuple[str, Owner]]) -> set[tuple[str, Owner]]:
        """Return all shown holders that were never real.

        A holder with fields that are unknown for a moment is not an error.

        Args:
            true: all pairs of a device and a real holder.
        """
        ever = {(seen.device, seen.owner) for _, shown in self.history for seen in shown}
        known = list(true)
        return {
            (device, owner)
            for device, owner in ever
            if not any(device == other and fits(owner, real) for other, real in known)
        }


def fits(shown: Owner, real: Owner) -> bool:
    """Return whether all known fields of a shown holder are correct."""
    return all(part in {"", whole} for part, whole in zip(shown, real, strict=True))


def holders(found: Series) -> frozenset[Seen]:
    """Return the holders; a MIG instance is named by its GPU's uuid and its GI."""
    shown = set()
    for name, pairs in found:
        if name != "podgpu_device_holder_info":
            continue
        labels = dict(pairs)
        device = labels["UUID"]
        if "GPU_I_ID" in labels:
            device += f"/{labels['GPU_I_ID']}"
        owner = Owner(labels["pod"], labels["container"], labels["pod_uid"], labels["namespace"])
        shown.add(Seen(device, owner, labels["source"], labels["evidence"]))
    return frozenset(shown)


class WatchedPodgpu(Podgpu):
    """A podgpu process that observes the node of a cluster.

    Its service account has exactly the documented permissions.
    """

    def __init__(
        self,
        kube: Cluster,
        folder: Path,
        scenario: Scenario | None,
        kinds: Collection[str] = ALL,
        rules: Sequence[dict[str, Any]] = RULES,
        *,
        options: Mapping[str, Mapping[str, Any]] = OFTEN,
        sinks: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Configure it; without a scenario it uses the GPUs of the machine."""
        super().__init__(folder, scenario)
        self.kube = kube
        self.token = folder / "token"
        self.kubeconfig = folder / "kubeconfig"
        if "pods" in kinds:
            access.service_account(kube.api, ACCOUNT, rules)
            self.renew_token()
            access.kubeconfig(self.kubeconfig, kube.api, self.token)
        ways: dict[str, dict[str, object]] = {
            "podresources": {"sockets": [str(kube.pod_resources_socket)]},
            "pods": {"kubeconfig": str(self.kubeconfig), "labels": ["team", "app.*"]},
            "checkpoint": {"path": str(kube.checkpoint)},
            "nri": {"socket": str(kube.nri_socket)},
        }
        sources = {"gpus": "nvml", **{kind: kind for kind in kinds}}
        self.configure(
            kube.node,
            {
                name: {"kind": kind, **ways.get(kind, {}), **options.get(kind, {})}
                for name, kind in sources.items()
            },
            sinks or {},
        )
        self.recorder = HolderRecorder(self.port)

    def renew_token(self) -> None:
        """Replace the token in the file, as the kubelet does with a projected token."""
        new = self.token.with_suffix(".new")
        new.write_text(access.token(self.kube.api, ACCOUNT, seconds=access.SHORTEST))
        new.replace(self.token)

    def renew_account(self) -> None:
        """Recreate the service account, so that old tokens are invalid."""
        access.remove_service_account(self.kube.api, ACCOUNT)
        access.service_account(self.kube.api, ACCOUNT, RULES)
        self.renew_token()

    def holders(self) -> frozenset[Seen]:
        return holders(self.page())

    def owners(self) -> dict[str, set[Owner]]:
        """Return the holders by device, for held devices."""
        found: dict[str, set[Owner]] = {}
        for seen in self.holders():
            found.setdefault(seen.device, set()).add(seen.owner)
        return found

    def wait_owners(self, expected: Mapping[str, Collection[Owner]], seconds: float = 30) -> float:
        """Wait until exactly these holders are shown; return the seconds waited."""
        wanted = {device: set(owners) for device, owners in expected.items()}
        began = time.monotonic()
        try:
            wait_until(lambda: self.owners() == wanted, "owners", seconds, every=0.02)
        except AssertionError:
            raise AssertionError(
                f"{wanted} wanted, {self.owners()} found; {self.output()[-2000:]}"
            ) from None
        return time.monotonic() - began

    def readings(self, device: str) -> dict[str, str]:
        """Return the labels of a GPU's temperature reading."""
        ((labels, _),) = self.of("DCGM_FI_DEV_GPU_TEMP", UUID=device)
        return labels


@contextmanager
def watching(
    kube: Cluster,
    folder: Path,
    scenario: Scenario | None,
    kinds: Collection[str] = ALL,
    rules: Sequence[dict[str, Any]] = RULES,
    *,
    options: Mapping[str, Mapping[str, Any]] = OFTEN,
    sinks: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[WatchedPodgpu]:
    """Run a podgpu and its recording thread, and stop both at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    subject = WatchedPodgpu(kube, folder, scenario, kinds, rules, options=options, sinks=sinks)
    thread = threading.Thread(target=subject.recorder.watch, daemon=True)
    try:
        with subject.running():
            thread.start()
            yield subject
    finally:
        subject.recorder.end()
        if thread.is_alive():
            thread.join(10)
