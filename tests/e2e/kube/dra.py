"""A DRA driver with simulated devices, and its API objects."""

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
    """Remove an unused claim; the controller that removes its finalizer does not run here."""
    api.delete("ResourceClaim", name, namespace)
    if api.find("ResourceClaim", name, namespace):
        api.patch("ResourceClaim", name, {"metadata": {"finalizers": None}}, namespace)
    api.wait_gone("ResourceClaim", name, namespace)


class DraDriver:
    """Publishes the devices of the node and prepares claims."""

    def __init__(
        self,
        background: Background,
        api: Api,
        devices: Mapping[str, str],
        *,
        name: str = "gpu.nvidia.com",
    ) -> None:
        """`devices` has uuids by device name, such as `gpu-0`."""
        self.name = name
        """Name of the driver and of its only DeviceClass."""
        self.pool = NODE
        self.devices = dict(devices)
        self.generation = 1
        """Generation of the pool."""
        self.refusal = ""
        """If not empty, the driver refuses to prepare claims with this error."""
        self.refused = 0
        """Number of refused claims."""
        self.prepared: dict[str, list[str]] = {}
        """CDI names by uid of the claim."""
        self.registrations = 0
        self._background = background
        self._api = api
        self._cdi_kind = f"k8s.{name}/claim"
        self._servers: list[grpc.aio.Server] = []
        folder = folders.KUBELET / "plugins" / name
        folder.mkdir(parents=True, exist_ok=True)
        self._socket = folder / "dra.sock"
        self._registry = folders.KUBELET / "plugins_registry" / f"{name}.sock"

    # Called in the test's thread.

    def start(self) -> None:
        """Publish the devices, start the server, and wait until the kubelet has registered the
        driver."""
        before = self.registrations
        self.publish()
        self._background.do(self._start())
        self.wait_registered(before + 1)

    def stop(self) -> None:
        """Stop the server and delete its objects; the test deletes claims."""
        self._background.do(self._stop())
        self._api.delete("ResourceSlice", self._slice())
        self._api.delete("DeviceClass", self.name)
        cdi.remove(self._cdi_kind)

    def wait_registered(self, times: int = 1) -> None:
        """Wait until a kubelet has registered it this many times."""
        wait_until(lambda: self.registrations >= times, f"{self.name} is registered")

    def publish(self) -> None:
        """Create the DeviceClass and the ResourceSlice if they are missing."""
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
        """Assign the device names to other devices, as the next generation of the pool."""
        self.devices = dict(devices)
        self.generation += 1
        spec = {
            "pool": {"name": self.pool, "generation": self.generation, "resourceSliceCount": 1},
            "devices": self._described(),
        }
        self._api.patch("ResourceSlice", self._slice(), {"spec": spec})

    def withdraw(self) -> None:
        """Delete the ResourceSlice; `publish` creates another one."""
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
        """Create a claim for this many devices, or for the device with that uuid.

        A claim with admin access needs a namespace with the label that allows it.
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

    # Called in the event loop.

    async def _start(self) -> None:
        prefix = f"{_SERVICE}.DRAPlugin"
        plugin = {
            "NodePrepareResources": self._prepare,
            "NodeUnprepareResources": self._unprepare,
        }
        registration = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notify}
        # The registry socket last: the kubelet connects as soon as it exists.
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
        # The kubelet deletes slices of drivers that were not registered for a while.
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
        """Return the devices of this driver that the scheduler allocated to a claim."""
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
