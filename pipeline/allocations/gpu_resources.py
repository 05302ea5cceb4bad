"""Which extended resources are GPUs of the node's driver, by their names and their device ids.

A name alone does not decide. Below `nvidia.com/` there are also network cards (SR-IOV and RDMA of
NVIDIA's network operator), GPUs and vGPUs for virtual machines (KubeVirt), which the driver of the
node does not show, and GPUs under any name that an administrator has chosen. Their ids differ:

    a GPU of the driver     `GPU-<uuid>`, `MIG-<uuid>`, `nvidiaN`; each also as a replica or a unit
    a PCI device            `0000:3b:00.2`: a virtual function of a network card, a passthrough GPU
    a mediated device       a uuid without prefix: a vGPU of a virtual machine
    others                  the number of an IOMMU group, a name of the plugin's own
"""

import logging
import re
from collections.abc import Iterable
from enum import Enum
from typing import Final

from pipeline.model.plugin_ids import glob_matcher

DEFAULT_RESOURCES: Final = ("nvidia.com/*", "*/*gpu*")
"""Patterns of extended resources that can be GPUs."""

DEFAULT_DRIVERS: Final = ("*gpu*",)
"""Patterns of DRA drivers that can have GPUs."""

_NOT: Final = "!"
_DEFAULTS: Final = frozenset({*DEFAULT_RESOURCES, *DEFAULT_DRIVERS})
_GPU_NAME: Final = re.compile(r".*/(?:.*gpu.*|mig-.*)")
_OTHER_DEVICES: Final = frozenset({"nvidia.com/pgpu", "nvidia.com/nvswitch"})
"""Devices for virtual machines. Their ids may be numbers of IOMMU groups."""

_OTHER_VENDORS: Final = re.compile(
    r"(?:.+\.)?(?:amd\.com|intel\.com|iluvatar\.ai|metax-tech\.com|mthreads\.com)(?:/.*)?"
)
_HEX: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GPU_ID: Final = re.compile(
    rf"(?:gpu|mig)-.+|nvidia[0-9].*|{_HEX}-(?:_|memory|core)-.+", re.IGNORECASE
)
_OTHER_ID: Final = re.compile(
    rf"(?:[0-9a-f]{{4,8}}:)?[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]|{_HEX}", re.IGNORECASE
)


class _Name(Enum):
    """What a name says about the devices of a resource or a driver."""

    NO = "not GPUs"
    MAYBE = "GPUs, if their ids are ids of GPUs"
    LIKELY = "GPUs, unless their ids are ids of other devices"
    YES = "GPUs, because the configuration names them"


class GpuNames:
    """Selects resources, or DRA drivers, that can be GPUs, by their names.

    Args:
        patterns: glob patterns; those after a `!` exclude. Exclusions alone apply to `defaults`.
        defaults: podgpu's own patterns.
    """

    def __init__(self, patterns: Iterable[str], defaults: Iterable[str]) -> None:
        listed = tuple(patterns)
        excluded = [each.removeprefix(_NOT) for each in listed if each.startswith(_NOT)]
        wanted = [each for each in listed if not each.startswith(_NOT)] or list(defaults)
        self._excludes = glob_matcher(excluded) if excluded else lambda _name: False
        self._matches_default = glob_matcher([*_DEFAULTS.intersection(wanted), ""])
        self._matches_own = glob_matcher([*(each for each in wanted if each not in _DEFAULTS), ""])

    def __call__(self, name: str) -> bool:
        """Return whether the devices under this name can be GPUs."""
        return self.judge(name) is not _Name.NO

    def names_gpus(self, name: str) -> bool:
        """Return whether the name is enough to know that the devices are GPUs."""
        return self.judge(name) in (_Name.LIKELY, _Name.YES)

    def judge(self, name: str) -> _Name:
        """Return what the name says."""
        if self._excludes(name):
            return _Name.NO
        if self._matches_own(name):
            return _Name.YES
        if not self._matches_default(name) or _OTHER_VENDORS.fullmatch(name):
            return _Name.NO
        is_gpu = _GPU_NAME.fullmatch(name) is not None and name not in _OTHER_DEVICES
        return _Name.LIKELY if is_gpu else _Name.MAYBE


class GpuResources:
    """Selects the extended resources that are GPUs of the driver, by their names and ids.

    May be used by several threads.

    Args:
        patterns: the option `resources`: see `GpuNames`.
        log: receives one message for each resource that is ignored because of its ids.
    """

    def __init__(
        self, patterns: Iterable[str] = DEFAULT_RESOURCES, log: logging.Logger | None = None
    ) -> None:
        self.can_be_gpus = GpuNames(patterns, DEFAULT_RESOURCES)
        self._log = log
        self._logged: set[str] = set()

    def are_gpus(self, resource: str, ids: Iterable[str]) -> bool:
        """Return whether devices of a resource are GPUs of the driver.

        Args:
            resource: name of the extended resource.
            ids: ids of its devices, as the device plugin wrote them.
        """
        name = self.can_be_gpus.judge(resource)
        if name in (_Name.NO, _Name.YES):
            return name is _Name.YES
        texts = list(ids)
        if not texts or any(_GPU_ID.fullmatch(text) for text in texts):
            return True
        are_others = all(_OTHER_ID.fullmatch(text) for text in texts)
        if name is _Name.LIKELY and not are_others:
            return True
        self._log_ignored(resource, texts[0], are_others=are_others)
        return False

    def _log_ignored(self, resource: str, example: str, *, are_others: bool) -> None:
        if self._log is None or resource in self._logged:
            return
        self._logged.add(resource)
        if are_others:
            self._log.info(
                "resource %s: ids such as %r are PCI devices or mediated devices, and not GPUs of "
                "this node's driver; podgpu ignores the resource",
                resource,
                example,
            )
            return
        self._log.warning(
            "resource %s: ids such as %r are not ids of GPUs; podgpu ignores the resource; if its "
            'devices are GPUs, add "%s" to the option resources; if not, add "!%s"',
            resource,
            example,
            resource,
            resource,
        )
