"""Measure how soon podgpu shows the start and the end of pods."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.kube import kubelet_state
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.processes import wait_until
from tests.e2e.watched_podgpu import Owner
from tests.gpu.gpu_node import SOON, Figures, Stage


def churn(stage: Stage, _folder: Path, pods: int = 12) -> Figures:
    """Start and delete pods, and measure the delay of labels after the API server."""
    before, times = stage.requests(), dict[str, list[float]]()
    for at in range(pods):
        for key, seconds in _one(stage, f"short-{at}").items():
            times.setdefault(key, []).append(seconds)
    assert max(times["labels_after_running"]) < SOON
    assert max(times["none_after_gone"]) < SOON
    requests = dict(stage.requests() - before)
    spreads = {key: _spread(found) for key, found in times.items()}
    return {"pods": pods, "requests": requests, **spreads}


def _one(stage: Stage, name: str) -> dict[str, float]:
    """Return the delays between a pod's changes and podgpu's page, in seconds.

    They may be negative: the kubelet allocates a device before the pod is running.
    """
    api, history = stage.kube.api, stage.podgpu.recorder.history
    meta = stage.kube.create(gpu_pod(name))["metadata"]
    running = _moment(lambda: api.pod(name)["status"]["phase"] == "Running")
    owner = Owner(name, "main", meta["uid"])
    ((gpu,),) = kubelet_state.checkpointed(owner.uid).values()
    stage.expect({gpu: [owner]})

    def first(*, shown: bool, since: float) -> float:
        """Return when the recording thread first saw it, with a small delay."""

        def seen() -> float | None:
            moments = (
                at
                for at, holders in history
                if at > since
                and shown == any((one.device, one.owner) == (gpu, owner) for one in holders)
            )
            return next(moments, None)

        return wait_until(seen, f"{name} is recorded")

    shown = first(shown=True, since=0)
    deleted = time.monotonic()
    api.delete("Pod", name, "default")
    gone = _moment(lambda: api.find("Pod", name, "default") is None)
    stage.expect({})
    end = first(shown=False, since=shown)
    return {
        "labels_after_running": shown - running,
        "none_after_delete": end - deleted,
        "none_after_gone": end - gone,
    }


def _moment(condition: Callable[[], bool]) -> float:
    """Wait for a condition and return the time."""
    wait_until(condition, "the state in the API server", every=0.01)
    return time.monotonic()


def _spread(seconds: list[float]) -> Figures:
    return {
        "median": round(statistics.median(seconds), 3),
        "max": round(max(seconds), 3),
        "min": round(min(seconds), 3),
    }
