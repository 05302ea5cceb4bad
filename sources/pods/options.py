"""Options of the source `pods`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from config.option_markers import AtLeast, AtMost, Doc, LeadsTo
from config.patterns import parse_pattern
from config.value_types import Duration, FormatError

Scheduler: TypeAlias = Literal["koordinator", "hami", "volcano", "gpushare", "kai"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The API server, the labels to keep, and the schedulers whose annotations are read."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; if not set, the pod's service account is used."),
    ] = None
    node: Annotated[
        str,
        Doc("The node whose pods are watched; empty for the node on which podgpu runs."),
    ] = ""
    labels: Annotated[
        tuple[str, ...],
        Doc("Names of labels to keep; * matches any text, ? any character."),
    ] = ()
    label_patterns: Annotated[
        tuple[str, ...],
        msgspec.Meta(max_length=64),
        Doc("Regular expressions; labels whose name contains a match are kept too."),
    ] = ()
    annotations: Annotated[
        tuple[str, ...],
        Doc("Names of annotations to keep, with * and ? as in labels."),
    ] = ()
    max_labels: Annotated[
        int,
        AtLeast(0),
        AtMost(1000),
        Doc("Maximum number of labels, and of annotations, that are kept of one pod."),
    ] = 20
    max_age: Annotated[
        Duration,
        AtLeast("1m"),
        Doc("How long the last known pods stay in use while the API server cannot be watched."),
    ] = Duration.parse("5m")
    resource_slices: Annotated[
        bool,
        Doc("Watch the node's ResourceSlices, which identify the devices of DRA drivers."),
    ] = True
    resource_claims: Annotated[
        bool,
        Doc("Read the ResourceClaims of the node's pods, to recognise admin access to devices."),
    ] = True
    schedulers: Annotated[
        tuple[Scheduler, ...],
        Doc("Schedulers whose annotations podgpu reads, to know which devices a pod holds."),
    ] = ("koordinator", "hami", "volcano", "gpushare", "kai")
    koordinator_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of koordinator; its annotation is used for pods that request one of them."),
    ] = (
        "koordinator.sh/gpu",
        "koordinator.sh/gpu-core",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/gpu-memory-ratio",
        "koordinator.sh/gpu.shared",
        "koordinator.sh/shared",
        "kubernetes.io/gpu",
        "kubernetes.io/gpu-core",
        "kubernetes.io/gpu-memory",
        "kubernetes.io/gpu-memory-ratio",
        "nvidia.com/gpu",
    )
    hami_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of HAMi; its annotation is used for pods that request one of them."),
    ] = (
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
    )
    volcano_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of volcano; its annotations are used for pods that request one of them."),
    ] = (
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
        "volcano.sh/gpu-number",
        "volcano.sh/gpu-memory",
    )
    gpushare_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of gpushare; its annotations are used for pods that request one of them."),
    ] = (
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-count",
        "aliyun.com/gpu-core.percentage",
    )
    reservation_namespaces: Annotated[
        tuple[str, ...],
        Doc("Namespaces in which the scheduler kai creates the pods that reserve GPUs for others."),
    ] = ("kai-resource-reservation", "runai-reservation")
    device_annotations: Annotated[
        tuple[str, ...],
        Doc("Annotations with a JSON value: resource names, each with UUIDs separated by commas."),
    ] = ()

    @property
    def resources(self) -> Mapping[Scheduler, tuple[str, ...]]:
        """The resources of the schedulers whose annotations are read."""
        names = (name for name in self.schedulers if name != "kai")
        return {name: getattr(self, f"{name}_resources") for name in names}

    def problems(self) -> Iterable[tuple[str, str]]:
        """Yield the option and message of each invalid regular expression."""
        for text in self.label_patterns:
            try:
                parse_pattern(text)
            except FormatError as error:
                yield "label_patterns", str(error)
