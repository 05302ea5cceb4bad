"""Counters lists in a mounted ConfigMap, and in a ConfigMap of a fake API server."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from pipeline.component.contracts import KubeApi
from tests.support.kube import ApiServer, Collection, Raw, status

PATH = "/api/v1/namespaces/gpu/configmaps/counters"


class ConfigMap(Collection):
    """A ConfigMap that a fake API server returns for a GET request."""

    def __init__(self, **data: str) -> None:
        super().__init__()
        self.data = data

    def listed(self, query: Mapping[str, str]) -> Raw:
        return {"kind": "ConfigMap", "metadata": {"name": "counters"}, "data": self.data}


def served(configmap: ConfigMap) -> ApiServer:
    return ApiServer({PATH: configmap})


def refuse(server: ApiServer, code: int, reason: str) -> None:
    server.refusals[PATH] = status(code, reason, f"{reason}: refused by the server")


class Mounted:
    """A folder as the kubelet mounts a ConfigMap: files are links through the link `..data`."""

    def __init__(self, folder: Path, text: str) -> None:
        self._folder = folder
        self._version = 0
        self.path = folder / "metrics"
        self.swap(text)
        self.path.symlink_to("..data/metrics")

    def swap(self, text: str) -> None:
        """Replace the content in one step, and remove the old content."""
        old = self._folder / f"..{self._version}"
        self._version += 1
        new = self._folder / f"..{self._version}"
        new.mkdir()
        (new / "metrics").write_text(text)
        (self._folder / "..tmp").symlink_to(new.name)
        (self._folder / "..tmp").replace(self._folder / "..data")
        if old.exists():
            (old / "metrics").unlink()
            old.rmdir()


@contextlib.asynccontextmanager
async def nowhere(_: Path | None):  # type: ignore[no-untyped-def]
    """Fail: this test needs no session with an API server."""
    raise AssertionError("no connection to an API server is expected")
    yield KubeApi
