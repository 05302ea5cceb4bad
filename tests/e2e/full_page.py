"""A podgpu with dcgm-exporter's command line whose page has everything that a page can have."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kube.background import Background
from tests.e2e.node import FAST, PODGPU
from tests.e2e.processes import Process, free_ports, get, wait_until
from tests.e2e.scenes import mixed
from tests.fakes.kubelet import FakeKubelet, pod
from tests.fakes.nvml import FakeNvml, Proc, Ramp, Scenario, linked
from tests.support.kube import ApiServer, Collection, ThreadedApiServer

COUNTERS = Path(__file__).resolve().parents[2] / "config" / "counters" / "default-counters.csv"
NODE = "gpu-node"

WORDS = (
    *("-f", str(COUNTERS), "-k", "-c", f"{FAST * 1000:g}"),
    *("--kubernetes-virtual-gpus", "--kubernetes-enable-dra"),
    *("--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid"),
)

ODD = 'a "quoted" text, a \\ and\na second line, Grüße 🙂 { } = #'
"""A value in which each character has a meaning in one of the formats."""


def scenario() -> Scenario:
    """Return four GPUs: with MIG instances, with processes, and with all NVLinks."""
    gpus = mixed().with_gpu(0, processes=[Proc(4242), Proc(4243, kind="graphics")])
    return gpus.with_gpu(2, **linked(sent=Ramp(0, 1000), received=Ramp(0, 2000)))


def pods(gpus: Scenario) -> dict[str, list[str]]:
    """Return device ids by pod: alone, shared by time-slicing, and on MIG instances."""
    _, cut, shared, whole = gpus.gpus
    assert cut.mig
    assert whole.mig
    return {
        "train-0": [gpus.gpus[0].uuid],
        "serve-0": [f"{shared.uuid}::0", f"{shared.uuid}::1"],
        "serve-1": [f"{shared.uuid}::2"],
        "mig-0": [cut.mig[0].uuid],
        "mig-1": [f"{whole.mig[0].uuid}::0"],
        "mig-2": [f"{whole.mig[0].uuid}::1"],
    }


def _described(number: int, name: str, devices: int) -> dict[str, Any]:
    """Return a pod as an API server has it; its labels and annotations are odd."""
    asked = {"limits": {"nvidia.com/gpu": str(devices)}}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"0f0e0d0c-0000-4000-8000-{number:012}",
            "labels": {
                "app.kubernetes.io/name": name,
                "a.b": "dot",
                "a-b": "dash",
                "gpu": "a100",
                "modelName": "own",
                "1st": "digit",
                "empty": "",
            },
            "annotations": {"example.com/note": ODD},
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": asked}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {}}}],
        },
    }


class FullPage:
    """The running podgpu.

    Attributes:
        port: of the page.
        file: the same metrics, written for node_exporter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "textfile" / "podgpu.prom"
        self.file.parent.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self.scenario = scenario()
        self.fake = FakeNvml(self.scenario, folder)
        self.kubelet = FakeKubelet(folder / "kubelet.sock")
        self.kubelet.pods = [
            pod(name, {"nvidia.com/gpu": ids}) for name, ids in pods(self.scenario).items()
        ]
        self._api = ThreadedApiServer(self._api_server, lambda _: None).server
        self.process: Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _api_server(self) -> ApiServer:
        collection = Collection()
        for number, (name, ids) in enumerate(pods(self.scenario).items()):
            collection.put(_described(number, name, len(ids)))
        return ApiServer({"/api/v1/pods": collection})

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    def page(self, accept: str = "text/plain") -> str:
        answer = get(self.port, "/metrics", {"Accept": accept})
        assert answer.status == 200, answer
        return answer.body.decode()

    def start(self) -> None:
        """Start it, and wait until the page has each pod and an XID error."""
        config = self.folder / "podgpu.yaml"
        config.write_text(self._config())
        self.process = Process(
            [PODGPU, "run", "-c", config], self.folder / "podgpu.log", self.fake.env()
        )
        wait_until(self._complete, f"a complete page:\n{self.output()[-3000:]}")

    def _complete(self) -> bool:
        assert self.process is not None
        if self.process.answers(self.port, "/metrics") is None:
            return False
        page = self.page()
        if "podgpu_xid_errors_total{" in page and "xid=" not in page:
            self.fake.push_xid(0, 79)
        words = [f'pod="{name}"' for name in pods(self.scenario)]
        words += ['pod_label_gpu="a100"', 'vgpu="2"', 'GPU_I_ID="', 'xid="79"', 'pid="4242"']
        return all(word in page for word in words) and self.file.exists()

    def _config(self) -> str:
        """Return what `--print-config` prints, with more fields, and without the cluster."""
        printed = Process(
            [PODGPU, "dcgm-exporter", *WORDS, "--print-config"],
            self.folder / "printed.yaml",
            {
                "NODE_NAME": NODE,
                "DCGM_EXPORTER_LISTEN": self.address,
                "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(self.kubelet.path),
            },
        )
        assert printed.wait() == 0, printed.output()
        config = yaml.safe_load(printed.output())
        config["node"] = NODE
        config["counters"]["also"] = ["all"]
        config["sources"]["gpus"]["process_readings"] = True
        config["sources"]["pods"] |= {
            "kubeconfig": str(self._api.kubeconfig(self.folder / "kubeconfig")),
            "annotations": ["*"],
            "resource_slices": False,
            "resource_claims": False,
        }
        page = config["sinks"]["metrics"]
        page["inline"].append("annotations")
        like_page = {key: value for key, value in page.items() if key != "listen"}
        config["sinks"]["file"] = {
            **like_page,
            "kind": "textfile",
            "path": str(self.file),
            "interval": "1s",
        }
        return yaml.safe_dump(config)

    @contextmanager
    def around(self) -> Iterator["FullPage"]:
        """Serve the kubelet and run podgpu; stop both at the end."""
        background = Background()
        with ExitStack() as stack:
            stack.callback(background.stop)
            background.do(self.kubelet.start())
            stack.callback(lambda: background.do(self.kubelet.stop()))
            try:
                self.start()
                yield self
            finally:
                # pytest shows it if the test has failed.
                print(self.output()[-3000:])
                status = self.process.stop() if self.process is not None else None
            assert status == 0
