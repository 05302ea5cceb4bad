"""Types that describe a command-line option."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

Value: TypeAlias = str | int | bool | tuple[str, ...]
"""Value of an option, according to its type: text, number, switch or list."""


class Type(StrEnum):
    """Type of an option's value."""

    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"
    LIST = "list"


class Support(StrEnum):
    """How podgpu treats an option of dcgm-exporter."""

    SAME = "same"
    RENAMED = "renamed"
    """podgpu has the same function under another name or in another form."""
    NOT_NEEDED = "not needed"
    NOT_SUPPORTED = "not supported"
    OWN = "podgpu's own"


_TYPES: Final = {str: Type.TEXT, int: Type.NUMBER, bool: Type.SWITCH, tuple: Type.LIST}
_VARIABLES: Final = {
    "collect-interval": "DCGM_EXPORTER_INTERVAL",
    "devices": "DCGM_EXPORTER_DEVICES_STR",
    "switch-devices": "DCGM_EXPORTER_OTHER_DEVICES_STR",
    "cpu-devices": "DCGM_EXPORTER_CPU_DEVICES_STR",
    "remote-hostengine-info": "DCGM_REMOTE_HOSTENGINE_INFO",
    "fake-gpus": "DCGM_EXPORTER_USE_FAKE_GPUS",
    "kubernetes-virtual-gpus": "KUBERNETES_VIRTUAL_GPUS",
    "kubernetes-enable-dra": "KUBERNETES_ENABLE_DRA",
    "nvidia-resource-names": "NVIDIA_RESOURCE_NAMES",
    "pod-resources-kubelet-socket": "DCGM_POD_RESOURCES_KUBELET_SOCKET",
    "hpc-job-mapping-dir": "DCGM_HPC_JOB_MAPPING_DIR",
    "container-runtime-socket": "DCGM_CONTAINER_RUNTIME_SOCKET",
    "address": "DCGM_EXPORTER_LISTEN",
    "web-systemd-socket": "DCGM_EXPORTER_SYSTEMD_SOCKET",
    "disable-startup-validate": "DISABLE_STARTUP_VALIDATE",
    "labels": "PODGPU_LABELS",
    "own": "PODGPU_OWN",
    "print-config": "",
}
"""Environment variables whose names do not follow from the option's."""


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option.

    Attributes:
        name: the name without its dashes.
        default: the value if the option is not given.
        why: a sentence of explanation, for users of the option.
        config_key: the key of podgpu's configuration file that it sets; empty for none.
        short: a short name without its dash; may be empty.
        support: how podgpu treats it.
    """

    name: str
    default: Value
    why: str
    config_key: str = ""
    short: str = ""
    support: Support = Support.SAME

    @property
    def type(self) -> Type:
        """Type of the value."""
        return _TYPES[type(self.default)]

    @property
    def variable(self) -> str:
        """The environment variable; may be empty."""
        derived = f"DCGM_EXPORTER_{self.name.upper().replace('-', '_')}"
        return _VARIABLES.get(self.name, derived)

    @property
    def flags(self) -> tuple[str, ...]:
        """All names with their dashes, the long one first."""
        return (f"--{self.name}", f"-{self.short}") if self.short else (f"--{self.name}",)

    @property
    def written_default(self) -> str:
        """The default as it is written on a command line."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)
