"""Options of the pods source."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from config.option_markers import AtLeast, AtMost, Doc, LeadsTo
from config.patterns import Pattern
from config.value_types import Duration, FormatError

Scheduler: TypeAlias = Literal["koordinator", "hami", "volcano", "gpushare", "kai"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which API server is asked, and what of a pod is handed on."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; none for those of the pod that podgpu runs in."),
    ] = None
    node: Annotated[
        str,
        Doc("The node whose pods are followed; empty for the node that podgpu runs on."),
    ] = ""
    labels: Annotated[
        tuple[str, ...],
        Doc("Names of labels that are let through; * and ? stand for any text and any letter."),
    ] = ()
    label_patterns: Annotated[
        tuple[str, ...],
        msgspec.Meta(max_length=64),
        Doc("Regular expressions; labels in whose name one of them is found are let through too."),
    ] = ()
    annotations: Annotated[
        tuple[str, ...],
        Doc("Names of annotations that are let through, as in labels."),
    ] = ()
    max_labels: Annotated[
        int,
        AtLeast(0),
        AtMost(1000),
        Doc("How many labels, and how many annotations, are let through from one pod."),
    ] = 20
    max_age: Annotated[
        Duration,
        AtLeast("1m"),
        Doc("How long what was heard stands once the API server can't be followed."),
    ] = Duration.parse("5m")
    resource_slices: Annotated[
        bool,
        Doc("Follow the node's ResourceSlices, which tell what devices of DRA drivers are."),
    ] = True
    resource_claims: Annotated[
        bool,
        Doc("Read the ResourceClaims of the node's pods: admin access to a device holds nothing."),
    ] = True
    schedulers: Annotated[
        tuple[Scheduler, ...],
        Doc("Schedulers whose annotations say which devices a pod holds; all others are not read."),
    ] = ("koordinator", "hami", "volcano", "gpushare", "kai")
    koordinator_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of koordinator; its annotation counts on pods that request one of them."),
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
        Doc("Resources of HAMi; its annotation counts on pods that request one of them."),
    ] = (
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
    )
    volcano_resources: Annotated[
        tuple[str, ...],
        Doc("Resources of volcano; its annotations count on pods that request one of them."),
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
        Doc("Resources of gpushare; its annotations count on pods that request one of them."),
    ] = (
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-count",
        "aliyun.com/gpu-core.percentage",
    )
    reservation_namespaces: Annotated[
        tuple[str, ...],
        Doc("Namespaces in which the scheduler kai makes the pods that reserve GPUs for others."),
    ] = ("kai-resource-reservation", "runai-reservation")
    device_annotations: Annotated[
        tuple[str, ...],
        Doc("Annotations whose value is JSON: the name of a resource, and uuids with commas."),
    ] = ()

    @property
    def resources(self) -> Mapping[Scheduler, tuple[str, ...]]:
        """The resources of the schedulers whose annotations are read."""
        every: dict[Scheduler, tuple[str, ...]] = {
            "koordinator": self.koordinator_resources,
            "hami": self.hami_resources,
            "volcano": self.volcano_resources,
            "gpushare": self.gpushare_resources,
        }
        return {name: every[name] for name in self.schedulers if name in every}

    def problems(self) -> Iterable[tuple[str, str]]:
        """A pattern has to be a regular expression."""
        for text in self.label_patterns:
            try:
                Pattern.parse(text)
            except FormatError as error:
                yield "label_patterns", str(error)
