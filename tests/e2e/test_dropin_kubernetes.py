"""podgpu replaces dcgm-exporter on a node with real kubelet, containerd and API server."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.exporter import READING, Exporter, exporting
from tests.e2e.kube import access
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import container, gpu_pod, pod
from tests.e2e.processes import wait_until
from tests.e2e.prometheus import Server
from tests.e2e.scenes import distinct

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]

ACCOUNT, NAMESPACE, LIST = "dcgm-exporter", "monitoring", "gpu-metrics"
FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
UTIL, CLOCK = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK"


class Start(Protocol):
    """Starts the exporter in the environment of a pod, with these arguments."""

    def __call__(self, *words: str) -> Exporter: ...


@pytest.fixture
def start(kube: Cluster, prometheus: Server, tmp_path: Path) -> Iterator[Start]:
    """Start an exporter with a pod's service account, mounted in a separate mount namespace.

    The account may read pods and `get` the one ConfigMap, as in dcgm-exporter's chart.
    """
    access.service_account(kube.api, ACCOUNT, [access.rule(["pods"], ["list", "watch"])])
    only = {**access.rule(["configmaps"], ["get"]), "resourceNames": [LIST]}
    access.allow(kube.api, ACCOUNT, [only], within=NAMESPACE)
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(access.token(kube.api, ACCOUNT, seconds=access.SHORTEST))
    shutil.copy(kube.api.authority, account / "ca.crt")
    script = (
        f"mount -t tmpfs none /run && mkdir -p {FOLDER} && mount --bind {account} {FOLDER}"
        ' && exec "$0" "$@"'
    )
    with ExitStack() as stack:

        def started(*words: str) -> Exporter:
            exporter = stack.enter_context(exporting(prometheus, tmp_path / "exporter", SCENE))
            exporter.start(
                *words,
                env={
                    "NODE_NAME": kube.node,
                    "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(kube.pod_resources_socket),
                    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                    "KUBERNETES_SERVICE_PORT": str(kube.api.port),
                },
                inside=["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            )
            return exporter

        yield started
    kube.api.delete("ConfigMap", LIST, NAMESPACE)


def write_list(kube: Cluster, *rows: str) -> None:
    """Create or change the ConfigMap."""
    data = {"metrics": "\n".join(f"{row}, gauge, Help of {row}." for row in rows)}
    if kube.api.find("ConfigMap", LIST, NAMESPACE):
        kube.api.patch("ConfigMap", LIST, {"data": data}, NAMESPACE)
    else:
        meta = {"name": LIST, "namespace": NAMESPACE}
        kube.api.create({"kind": "ConfigMap", "metadata": meta, "data": data})


def of(exporter: Exporter, uuid: str, family: str = UTIL) -> list[dict[str, str]]:
    """Return the holder labels of a GPU's readings."""
    series = [each for each in exporter.labels().get(family, ()) if each["UUID"] == uuid]
    return [{name: each[name] for name in each.keys() - READING} for each in series]


def wait_holders(
    exporter: Exporter, uuid: str, expected: list[dict[str, str]], family: str = UTIL
) -> None:
    """Wait until a GPU has one reading for each of these holders, and no others.

    Without a hint, podgpu queries the kubelet only every ten seconds.
    """
    wanted = sorted(map(sorted_items, expected))
    try:
        wait_until(
            lambda: sorted(map(sorted_items, of(exporter, uuid, family))) == wanted,
            "holders",
            seconds=60,
        )
    except AssertionError:
        raise AssertionError(
            f"{expected} wanted, {of(exporter, uuid, family)} found; {exporter.output()[-3000:]}"
        ) from None


def sorted_items(labels: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(labels.items())


def test_the_counters_configmap_and_pod_labels_and_uid_work(kube: Cluster, start: Start) -> None:
    plugin = kube.plugin(IDS)
    access.add_namespace(kube.api, NAMESPACE)
    write_list(kube, UTIL)
    exporter = start(
        "-k",
        "-m",
        f"{NAMESPACE}:{LIST}",
        "--kubernetes-enable-pod-labels",
        "--kubernetes-enable-pod-uid",
    )
    exporter.wait_families({UTIL})
    labels = {"team": "vision", "app.kubernetes.io/name": "trainer"}
    made = kube.run(gpu_pod("train-0", 1, namespace="ml", labels=labels))
    (device,) = plugin.asked[-1]
    holder = {
        "namespace": "ml",
        "pod": "train-0",
        "container": "main",
        "pod_uid": made["metadata"]["uid"],
        "team": "vision",
        "app_kubernetes_io_name": "trainer",
    }
    wait_holders(exporter, device, [holder])
    for other in IDS:
        assert other == device or [each["pod"] for each in of(exporter, other)] == [""]
    selected = ",".join(f'{name}="{value}"' for name, value in holder.items())
    index = str(IDS.index(device))
    exporter.wait(f"{UTIL}{{$i,{selected}}}", {index: 10 * (int(index) + 1)})

    # podgpu reads the list each minute, and immediately at a signal.
    write_list(kube, CLOCK, UTIL)
    assert exporter.process is not None
    os.kill(exporter.process.pid, signal.SIGHUP)
    exporter.wait_families({CLOCK, UTIL})
    assert of(exporter, device, CLOCK) == [holder]
    kube.api.delete("ConfigMap", LIST, NAMESPACE)
    os.kill(exporter.process.pid, signal.SIGHUP)
    wait_until(
        lambda: "the previous list stays in use" in exporter.output(), "the missing list is logged"
    )
    assert exporter.families() == {CLOCK, UTIL}

    kube.remove("train-0", "ml")
    no_one = dict.fromkeys(("namespace", "pod", "container"), "")
    wait_until(lambda: no_one.items() <= of(exporter, device)[0].items(), "the GPU is free")


@pytest.mark.parametrize("virtual", [True, False], ids=["per replica", "once"])
def test_holders_of_a_time_sliced_gpu(kube: Cluster, start: Start, virtual: bool) -> None:
    """The plugin offers four replicas of a GPU, with NVIDIA's ids."""
    plugin = kube.plugin([f"{IDS[2]}::{at}" for at in range(4)])
    write_list(kube, UTIL, CLOCK)
    holders, uids = {}, {}
    for name in ("serve-0", "serve-1"):
        uids[name] = kube.run(gpu_pod(name))["metadata"]["uid"]
        (replica,) = plugin.asked[-1]
        who = {"namespace": "default", "pod": name, "container": "main"}
        holders[name] = {**who, "vgpu": replica.partition("::")[2]}
    words = ["-k", "-m", f"{NAMESPACE}:{LIST}"]
    exporter = start(*words, *(["--kubernetes-virtual-gpus"] if virtual else []))
    exporter.wait_families({UTIL, CLOCK})
    exporter.wait("podgpu_device_holder_info{$i}", dict.fromkeys(holders, 1), "pod")
    no_one = dict.fromkeys(("namespace", "pod", "container"), "")
    wait_holders(exporter, IDS[2], list(holders.values()) if virtual else [no_one], CLOCK)
    exporter.wait(f'{UTIL}{{$i,gpu="2",pod=""}}', {"2": 30})
    if virtual:
        # The pods' own processes use nothing: there are none.
        own = [{**who, "pod_uid": uids[name]} for name, who in holders.items()]
        wait_holders(exporter, IDS[2], [no_one, *own])
        exporter.wait(f'{UTIL}{{$i,gpu="2",pod!=""}}', dict.fromkeys(holders, 0), "pod")
    kube.remove("serve-1")
    alone = holders["serve-0"]
    wait_holders(exporter, IDS[2], [alone if virtual else {k: alone[k] for k in no_one}], CLOCK)


def test_devices_of_resource_claims_have_the_labels_of_the_claim(
    kube: Cluster, start: Start
) -> None:
    """The account has the permissions of dcgm-exporter's chart, so it cannot read claims."""
    slices = access.rule(["resourceslices"], group="resource.k8s.io")
    access.set_rules(kube.api, ACCOUNT, [access.rule(["pods"], ["list", "watch"]), slices])
    driver = kube.dra_driver({f"gpu-{at}": device for at, device in enumerate(IDS)})
    time.sleep(1.1)  # the meaning of a name is unknown in the second of its publication
    write_list(kube, UTIL)
    exporter = start("-k", "-m", f"{NAMESPACE}:{LIST}", "--kubernetes-enable-dra")
    exporter.wait_families({UTIL})

    driver.claim("one", uuid=IDS[0])
    driver.claim("both", uuid=IDS[1])
    users = {"train-0": "one", "serve-0": "both", "serve-1": "both"}
    for name, claim in users.items():
        user = container(claims=["gpu"])
        kube.run(pod(name, user, claims={"gpu": claim}, scheduled=True))
    holders = {
        name: {
            "namespace": "default",
            "pod": name,
            "container": "main",
            "dra_claim_name": claim,
            "dra_claim_namespace": "default",
            "dra_driver_name": driver.name,
            "dra_pool_name": driver.pool,
            "dra_device_name": "gpu-0" if claim == "one" else "gpu-1",
        }
        for name, claim in users.items()
    }
    wait_holders(exporter, IDS[0], [holders["train-0"]])
    wait_holders(exporter, IDS[1], [holders["serve-0"], holders["serve-1"]])
    wait_holders(exporter, IDS[2], [dict.fromkeys(("namespace", "pod", "container"), "")])
