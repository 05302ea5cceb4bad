"""A driver of claims whose devices exist in name only, and the objects that belong to it."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from tests.e2e.kube import cdi, folders
from tests.e2e.kube.api import Api, Object
from tests.e2e.kube.apiserver import NODE
from tests.e2e.kube.background import Background
from tests.e2e.kube.messages import Message, handler, message
from tests.e2e.processes import wait_until

_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1"


def remove_claim(api: Api, name: str, namespace: str = "default") -> None:
    """Remove a claim that no pod uses any more: the controller that would let it go isn't here."""
    api.delete("ResourceClaim", name, namespace)
    if api.find("ResourceClaim", name, namespace):
        api.patch("ResourceClaim", name, {"metadata": {"finalizers": None}}, namespace)
    api.wait_gone("ResourceClaim", name, namespace)


class DraDriver:
    """Publishes the node's devices and prepares claims on them."""

    def __init__(
        self,
        background: Background,
        api: Api,
        devices: Mapping[str, str],
        *,
        name: str = "gpu.nvidia.com",
    ) -> None:
        """`devices` has uuids by the driver's names for them, such as `gpu-0`."""
        self.name = name
        """That of the driver, and of the only DeviceClass."""
        self.pool = NODE
        self.devices = dict(devices)
        self.generation = 1
        """That of the pool."""
        self.refusal = ""
        """Why it can't prepare anything, while it can't."""
        self.refused = 0
        """How often it has said so."""
        self.prepared: dict[str, list[str]] = {}
        """CDI names by the claim's uid."""
        self.registrations = 0
        self._background = background
        self._api = api
        self._cdi_kind = f"k8s.{name}/claim"
        self._servers: list[grpc.aio.Server] = []
        folder = folders.KUBELET / "plugins" / name
        folder.mkdir(parents=True, exist_ok=True)
        self._socket = folder / "dra.sock"
        self._registry = folders.KUBELET / "plugins_registry" / f"{name}.sock"

    # From the test's thread.

    def start(self) -> None:
        """Publish and serve, and wait until the kubelet knows the driver."""
        before = self.registrations
        self.publish()
        self._background.do(self._start())
        self.wait_registered(before + 1)

    def stop(self) -> None:
        """Stop to serve and take the objects away; claims are the test's."""
        self._background.do(self._stop())
        self._api.delete("ResourceSlice", self._slice())
        self._api.delete("DeviceClass", self.name)
        cdi.remove(self._cdi_kind)

    def wait_registered(self, times: int = 1) -> None:
        """Wait until a kubelet has taken it so often."""
        wait_until(lambda: self.registrations >= times, f"{self.name} is registered")

    def publish(self) -> None:
        """Write the DeviceClass and the ResourceSlice, where they aren't there."""
        ours = [{"cel": {"expression": f'device.driver == "{self.name}"'}}]
        if not self._api.find("DeviceClass", self.name):
            self._api.create(
                {
                    "kind": "DeviceClass",
                    "metadata": {"name": self.name},
                    "spec": {"selectors": ours},
                }
            )
        if not self._api.find("ResourceSlice", self._slice()):
            self._api.create(
                {
                    "kind": "ResourceSlice",
                    "metadata": {"name": self._slice()},
                    "spec": {
                        "driver": self.name,
                        "nodeName": NODE,
                        "pool": {
                            "name": self.pool,
                            "generation": self.generation,
                            "resourceSliceCount": 1,
                        },
                        "devices": self._described(),
                    },
                }
            )

    def renumber(self, devices: Mapping[str, str]) -> None:
        """Publish other devices under the names, as the next generation of the pool."""
        self.devices = dict(devices)
        self.generation += 1
        spec = {
            "pool": {"name": self.pool, "generation": self.generation, "resourceSliceCount": 1},
            "devices": self._described(),
        }
        self._api.patch("ResourceSlice", self._slice(), {"spec": spec})

    def withdraw(self) -> None:
        """Delete the slice; `publish` makes another one."""
        self._api.delete("ResourceSlice", self._slice())

    def claim(
        self,
        name: str,
        count: int = 1,
        *,
        uuid: str | None = None,
        namespace: str = "default",
        admin: bool = False,
    ) -> Object:
        """Create a claim on so many devices, or on the one with that uuid.

        One with admin access needs a namespace whose label allows it.
        """
        exactly: dict[str, Any] = {"deviceClassName": self.name, "count": count}
        if admin:
            exactly["adminAccess"] = True
        if uuid:
            attribute = f'device.attributes["{self.name}"].uuid'
            exactly["selectors"] = [{"cel": {"expression": f'{attribute} == "{uuid}"'}}]
        return self._api.create(
            {
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
            }
        )

    def _described(self) -> list[Object]:
        return [
            {
                "name": device,
                "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}},
            }
            for device, uuid in self.devices.items()
        ]

    def _slice(self) -> str:
        return f"{NODE}-{self.name}"

    # On the loop.

    async def _start(self) -> None:
        prefix = f"{_SERVICE}.DRAPlugin"
        plugin = {
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        registration = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notify}
        # The socket in the registry last: the kubelet comes as soon as it sees it.
        for socket, served in (
            (self._socket, handler(prefix, plugin)),
            (self._registry, handler("pluginregistration.Registration", registration)),
        ):
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((served,))
            socket.unlink(missing_ok=True)
            server.add_insecure_port(f"unix://{socket}")
            await server.start()
            self._servers.append(server)

    async def _stop(self) -> None:
        for server in reversed(self._servers):
            await server.stop(None)
        self._servers.clear()
        for socket in (self._registry, self._socket):
            socket.unlink(missing_ok=True)

    async def _info(self, _request: Message, _context: object) -> Message:
        return message("pluginregistration.PluginInfo")(
            type="DRAPlugin",
            name=self.name,
            endpoint=str(self._socket),
            supported_versions=["v1.DRAPlugin"],
        )

    async def _notify(self, request: Message, _context: object) -> Message:
        assert request.plugin_registered, request.error
        # A kubelet takes away the slices of drivers that it has not heard of for a while.
        await asyncio.to_thread(self.publish)
        self.registrations += 1
        return message("pluginregistration.RegistrationStatusResponse")()

    async def _prepare(self, request: Message, _context: object) -> Message:
        answer = message(f"{_SERVICE}.NodePrepareResourcesResponse")()
        for claim in request.claims:
            if self.refusal:
                answer.claims[claim.uid].error = self.refusal
                self.refused += 1
                continue
            for result in await self._allocated(claim):
                name = f"{claim.uid}-{result['device']}"
                names = self.prepared.setdefault(claim.uid, [])
                if name not in names:
                    names.append(name)
                answer.claims[claim.uid].devices.add(
                    request_names=[result["request"]],
                    pool_name=result["pool"],
                    device_name=result["device"],
                    cdi_device_ids=[cdi.qualified(self._cdi_kind, name)],
                )
        self._describe()
        return answer

    async def _allocated(self, claim: Message) -> Iterable[Object]:
        """Return what the scheduler has given to a claim, of this driver's."""
        found = await asyncio.to_thread(self._api.get, "ResourceClaim", claim.name, claim.namespace)
        results = found["status"]["allocation"]["devices"]["results"]
        return [result for result in results if result["driver"] == self.name]

    async def _unprepare(self, request: Message, _context: object) -> Message:
        answer = message(f"{_SERVICE}.NodeUnprepareResourcesResponse")()
        for claim in request.claims:
            self.prepared.pop(claim.uid, None)
            answer.claims[claim.uid].SetInParent()
        self._describe()
        return answer

    def _describe(self) -> None:
        cdi.write(self._cdi_kind, [name for names in self.prepared.values() for name in names])
