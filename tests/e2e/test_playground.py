"""The playground cluster: its content, how it ends, and that nothing is left."""

import os
import signal
import threading
from pathlib import Path

import pytest
import yaml

from tests.e2e import playground
from tests.e2e.helm import Helm
from tests.e2e.image import Image
from tests.e2e.image_pods import page
from tests.e2e.installation import installed
from tests.e2e.kube import kubelet_state
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.service import NODE_ADDRESS
from tests.e2e.playground_setup import PODS, playing
from tests.e2e.processes import wait_until


def addresses() -> str:
    output = Path("/proc/net/fib_trie").read_text()
    return "\n".join(line for line in output.splitlines() if NODE_ADDRESS in line)


def test_the_playground_values_suffice_and_everything_is_removed(
    kube: Cluster, image: Image, helm: Helm
) -> None:
    labels = kube.api.get("Node", kube.node)["metadata"]["labels"]
    with playing(kube, image) as site:
        held = {name: len(devices["main"]) for name, devices in kubelet_state.held().items()}
        assert held == PODS
        text = playground.instructions(site, with_image=True)
        assert f"KUBECONFIG={site.kubeconfig}\n" in text
        assert site.values.read_text().strip() in text.replace("\n    ", "\n")
        how = {**yaml.safe_load(site.values.read_text()), "minReadySeconds": 1}
        with installed(kube, helm, how) as release:
            (made,) = release.pods()
            for name in PODS:
                wait_until(lambda name=name: f'pod="{name}"' in page(made), name)  # type: ignore[misc]
            # Like `kubectl logs`: the API server reaches the kubelet.
            where = f"/api/v1/namespaces/podgpu/pods/{made['metadata']['name']}/log"
            assert "podgpu: starting" in kube.api.request("GET", where)
    assert kube.api.list("Pod") == []
    assert kube.api.get("Node", kube.node)["metadata"]["labels"] == labels
    assert not site.values.parent.exists()
    assert addresses() == ""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_interrupt_the_cleanup(
    signum: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signum)
    cleared = False
    with playground.until_signal() as wait:
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signum)).start()
            wait()
        finally:
            os.kill(os.getpid(), signum)
            cleared = True
    assert cleared
    assert "is ending" in capsys.readouterr().err
    assert signal.getsignal(signum) == before


def test_other_exceptions_are_not_suppressed() -> None:
    with pytest.raises(KeyboardInterrupt), playground.until_signal():
        raise KeyboardInterrupt


def test_missing_capabilities_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playground, "missing_rights", lambda: "no CAP_SYS_ADMIN here")
    assert playground.main([]) == 1
    assert "no CAP_SYS_ADMIN here: a cluster needs root" in capsys.readouterr().err
