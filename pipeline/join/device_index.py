"""Resolves a device id, as a source wrote it, to a device.

These are the forms of ids that device plugins, schedulers and runtimes write:

    scheme    forms
    uuid      `GPU-<uuid>`, `MIG-<uuid>`, `MIG-GPU-<uuid>/<gi>/<ci>` (drivers before R470);
              each also as a replica (followed by `::K` or `/vgpuK`)
    minor     `N`
    index     `N`, `N:M`
    visible   the forms of `uuid`, `index` and `cdi`
    cdi       `<vendor>/<class>=<uuid>`; if the kind is `nvidia.com/gpu` or ends in
              `.nvidia.com/gpu` also `N`, `N:M`, `gpuN` and `migN:M`; for a resource claim
              `k8s.gpu.nvidia.com/claim=<claim uid>-<device>`, where the device is an alias,
              `gpu-<minor>`, or `gpu-<minor>-mig-<profile>-<profile id>-<first memory slice>`
    dra       `<driver>/<pool>/<device>`, only as an alias
    plugin    the forms of `uuid`, `nvidiaN` and `nvidiaN/giG`, these also as replicas; or a
              placeholder (the uuid of a GPU followed by `-K`, `-_-K`, `-memory-K` or `-core-K`)
    reserved  a group; `pipeline.join.reservations` finds the devices of its reservation pod
    all       any; see `DeviceIndex.every_device`

An alias (`DeviceAliasesReplaced`) has precedence over the form. Case is ignored. All other texts
name no device.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import Device, RawDeviceId, placement_name

_HEX: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_N: Final = "[0-9]{1,9}"
_PLACEHOLDER: Final = re.compile(rf"(gpu-{_HEX})-(?:_-|memory-|core-)?{_N}")
_LEGACY_MIG: Final = re.compile(rf"mig-(gpu-{_HEX})/({_N})/({_N})")
_MINOR_MIG: Final = re.compile(rf"nvidia({_N})(?:/gi({_N}))?")
_REPLICA: Final = re.compile(rf"(.+?)(?:::|/vgpu)({_N})")
_INDEX: Final = re.compile(rf"(?:gpu)?({_N})|(?:mig)?({_N}:{_N})")
_GPU_KIND: Final = re.compile(r"(?:.+\.)?nvidia\.com/gpu")
_CLAIMED: Final = re.compile(rf"{_HEX}-(.+)")
_BY_MINOR: Final = re.compile(rf"gpu-({_N})")
_MIG_BY_MINOR: Final = re.compile(rf"gpu-({_N})-mig-([0-9]+g[0-9a-z-]+)-{_N}-({_N})")
_UNIQUE_ID: Final = re.compile(
    rf"(?:(?:gpu-|mig-)?{_HEX}|mig-gpu-{_HEX}/{_N}/{_N})(?:(?:::|/vgpu){_N})?"
    r"|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)
"""A uuid or a PCI address: it can only mean the one device that has it."""
_CLAIM_KIND: Final = "k8s.gpu.nvidia.com/claim"
_NVIDIA_DRIVER: Final = "gpu.nvidia.com/"
_MANAGEMENT_PREFIX: Final = "management."
_MAX_CACHED: Final = 20_000

RawIds: TypeAlias = dict[tuple[str, str], RawDeviceId]
"""Device ids by scheme and text, each once. Pairs of strings hash much faster than the ids."""


class ResolvedDevice(NamedTuple):
    """The device that an id names.

    Attributes:
        uuid: uuid of the device.
        is_whole_device: whether a device plugin offers the whole device under this id. The kubelet
            allocates such a device to only one pod.
        replica: number of the replica, if the id names a replica of the device; else empty.
        is_placeholder: whether the id is only for counting: the scheduler decides elsewhere which
            GPU the container gets, and it need not be this one.
        is_reserved: whether the device belongs to a reservation pod, and is shared.
        admin_access: whether the id gives access for monitoring (`adminAccess`) and holds nothing.
        dra_name: the id, `driver/pool/device`, if it is the name of a DRA driver; else empty.
    """

    uuid: str
    is_whole_device: bool = False
    replica: str = ""
    is_placeholder: bool = False
    is_reserved: bool = False
    admin_access: bool = False
    dra_name: str = ""


class DeviceIndex:
    """The node's devices by all their ids.

    Index and minor number identify physical GPUs only. They are two different numberings, which
    disagree on many nodes, so that a number is only looked up in the one that its scheme names.

    Attributes:
        parents: uuids of GPUs, by the uuids of their MIG instances.
        numbered_schemes: the schemes, `minor` and `index`, in which every GPU has a number. An
            unknown number in an annotation then names no device, as an unknown uuid does.

    Args:
        devices: the devices of the node. Of two with the same number the later one has it.
        aliases: further names, as reported by sources, with the uuids that they mean.
    """

    def __init__(
        self, devices: Iterable[Device], aliases: Mapping[RawDeviceId, str] | None = None
    ) -> None:
        self._uuids: dict[str, str] = {}
        self._minors: dict[str, str] = {}
        self._indices: dict[str, str] = {}
        self._mig_instances: dict[tuple[str, int], list[Device]] = {}
        self._placements: dict[str, set[str]] = {}
        self._aliases: dict[tuple[str, str], str] = {}
        self._dra_names: dict[str, set[str]] = {}
        self._cache: dict[tuple[str, str], ResolvedDevice | None] = {}
        self._whole: set[str] = set()
        self.parents: dict[str, str] = {}
        self.numbered_schemes = {"minor", "index"}
        for device in devices:
            self._add(device)
        for name, uuid in (aliases or {}).items():
            text = name.text.lower()
            self._aliases[name.scheme, text] = uuid.lower()
            if text.startswith(_NVIDIA_DRIVER):
                self._dra_names.setdefault(text.rpartition("/")[2], set()).add(uuid.lower())

    def _add(self, device: Device) -> None:
        # The driver writes uuids in lower case, people and tools not always.
        self._uuids[device.uuid.lower()] = device.uuid
        if device.mig is not None:
            self.parents[device.uuid] = device.mig.parent_uuid
            place = (device.mig.parent_uuid.lower(), device.mig.gpu_instance_id)
            self._mig_instances.setdefault(place, []).append(device)
            if placement := device.mig.placement:
                self._placements.setdefault(placement.lower(), set()).add(device.uuid)
            if device.index is not None and device.mig.index is not None:
                self._indices[f"{device.index}:{device.mig.index}"] = device.uuid
            return
        self._whole.add(device.uuid)
        for scheme, number, uuids in (
            ("minor", device.minor, self._minors),
            ("index", device.index, self._indices),
        ):
            if number is None:
                self.numbered_schemes.discard(scheme)
            else:
                uuids[str(number)] = device.uuid

    @property
    def single_gpu(self) -> bool:
        """Whether the node has one physical GPU, so that every placeholder means that GPU."""
        return len(self._whole) == 1

    @property
    def gpus(self) -> frozenset[str]:
        """The uuids of the physical GPUs."""
        return frozenset(self._whole)

    @property
    def every_device(self) -> tuple[str, ...]:
        """The uuids of the MIG instances, and of the GPUs without any, sorted."""
        return tuple(sorted((self._whole - set(self.parents.values())) | self.parents.keys()))

    def resolve(self, raw: RawDeviceId) -> ResolvedDevice | None:
        """Return the device that the id names; None if this node has no such device."""
        key = (raw.scheme, raw.text)
        if key in self._cache:
            return self._cache[key]
        if len(self._cache) >= _MAX_CACHED:  # replica ids that changed over weeks
            self._cache.clear()
        found = self._resolve_uncached(raw.scheme, raw.text.lower())
        if found is not None and raw.scheme == "dra":
            found = found._replace(dra_name=raw.text)
        self._cache[key] = found
        return found

    def alias_target(self, alias: str) -> ResolvedDevice | None:
        """Return the device that the target of an alias means: a uuid or `MigPlace.placement`.

        None if no device, or more than one, has it.
        """
        uuid = self._device_of_alias(alias.lower())
        return None if uuid is None else ResolvedDevice(uuid)

    def _device_of_alias(self, alias: str) -> str | None:
        placed = self._placements.get(alias, set())
        # Several compute instances may share a GPU instance: then it is unknown which is meant.
        return self._uuids.get(alias) or (next(iter(placed)) if len(placed) == 1 else None)

    def is_ambiguous(self, raw: RawDeviceId) -> bool:
        """Whether an unresolved id may still mean a device of this node.

        It cannot mean one if it contains a uuid or a PCI address, if it is an alias, or if it is
        the CDI name of something other than a GPU.
        """
        text = raw.text.lower()
        if (raw.scheme, text) in self._aliases:
            return False
        if raw.scheme == "cdi" or (raw.scheme == "visible" and "=" in text):
            kind, _, text = text.partition("=")
            if kind.startswith(_MANAGEMENT_PREFIX):
                return False
            if kind != _CLAIM_KIND and _GPU_KIND.fullmatch(kind) is None:
                return False
        return _UNIQUE_ID.fullmatch(text) is None

    def _resolve_uncached(self, scheme: str, text: str) -> ResolvedDevice | None:
        if scheme == "plugin":
            return self._by_plugin_id(text)
        target = self._aliases.get((scheme, text))
        uuid = self._by_scheme(scheme, text) if target is None else self._device_of_alias(target)
        if uuid is not None:
            return ResolvedDevice(uuid)
        match = _REPLICA.fullmatch(text) if scheme in {"uuid", "visible"} else None
        if match is None or (uuid := self._uuid(match[1])) is None:
            return None
        return ResolvedDevice(uuid, replica=match[2])

    def _by_scheme(self, scheme: str, text: str) -> str | None:
        if scheme == "cdi" or (scheme == "visible" and "=" in text):
            return self._cdi(text)
        if scheme == "minor":
            return self._minors.get(text)
        uuid = self._uuid(text) if scheme in {"uuid", "visible"} else None
        return uuid or (self._indices.get(text) if scheme in {"index", "visible"} else None)

    def _uuid(self, text: str) -> str | None:
        known = self._uuids.get(text)
        if known is None and (match := _LEGACY_MIG.fullmatch(text)):
            return self._mig_instance(match[1], int(match[2]), int(match[3]))
        return known

    def _mig_instance(self, parent: str, gi: int, ci: int | None) -> str | None:
        instances = [
            (device.uuid, device.mig.compute_instance_id)
            for device in self._mig_instances.get((parent, gi), ())
            if device.mig is not None
        ]
        matching = [uuid for uuid, known in instances if known == ci]
        matching = matching or [uuid for uuid, known in instances if None in (ci, known)]
        return matching[0] if len(matching) == 1 else None

    def _cdi(self, text: str) -> str | None:
        kind, _, name = text.partition("=")
        if kind.startswith(_MANAGEMENT_PREFIX):
            return None
        if kind == _CLAIM_KIND:
            claimed = _CLAIMED.fullmatch(name)
            return self._by_dra_name(claimed[1]) if claimed else None
        # Other kinds have their own numbers: IMEX channels, network cards, GPUs of other vendors.
        if _GPU_KIND.fullmatch(kind) and (match := _INDEX.fullmatch(name)):
            return self._indices.get(match[1] or match[2])
        return self._uuid(name)

    def _by_dra_name(self, name: str) -> str | None:
        """Resolve a device name of NVIDIA's DRA driver: as an alias, else by minor number."""
        targets = self._dra_names.get(name, set())
        if targets:
            return self._device_of_alias(next(iter(targets))) if len(targets) == 1 else None
        if match := _BY_MINOR.fullmatch(name):
            return self._minors.get(match[1])
        return self._by_placement(name)

    def _by_placement(self, name: str) -> str | None:
        """Resolve `gpu-<minor>-mig-<profile>-<profile id>-<start>`; the profile has no dot."""
        match = _MIG_BY_MINOR.fullmatch(name)
        gpu = self._minors.get(match[1]) if match else None
        if match is None or gpu is None:
            return None
        matching = [
            uuid
            for placement, uuids in self._placements.items()
            if placement.replace(".", "").replace("+", "-")
            == placement_name(gpu.lower(), match[2], int(match[3])).lower()
            for uuid in uuids
        ]
        return matching[0] if len(matching) == 1 else None

    def _by_plugin_id(self, text: str) -> ResolvedDevice | None:
        match = _REPLICA.fullmatch(text)
        body = match[1] if match else text
        target = self._aliases.get(("plugin", body))
        uuid = (
            self._uuid(body) or self._by_minor(body) if target is None else self._uuids.get(target)
        )
        if uuid is not None:
            replica = match[2] if match else ""
            return ResolvedDevice(uuid, is_whole_device=match is None, replica=replica)
        if (placeholder := _PLACEHOLDER.fullmatch(body)) and (
            uuid := self._uuids.get(placeholder[1])
        ):
            return ResolvedDevice(uuid, is_placeholder=True)
        return None

    def _by_minor(self, text: str) -> str | None:
        match = _MINOR_MIG.fullmatch(text)
        if match is None:
            return None
        gpu = self._minors.get(match[1])
        if gpu is None or match[2] is None:
            return gpu
        return self._mig_instance(gpu.lower(), int(match[2]), None)
