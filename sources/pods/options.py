"""Options of the pods source."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from config.markers import AtLeast, AtMost, Doc
from config.patterns import Pattern
from config.types import Duration, FormatError

Scheduler: TypeAlias = Literal["koordinator", "hami", "volcano", "gpushare"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which API server is asked, and what of a pod is handed on."""

    kubeconfig: Annotated[
        Path | None,
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
    ] = ("koordinator", "hami", "volcano", "gpushare")
    device_annotations: Annotated[
        tuple[str, ...],
        Doc("Annotations whose value is JSON: the name of a resource, and uuids with commas."),
    ] = ()

    def problems(self) -> Iterable[tuple[str, str]]:
        """A pattern has to be a regular expression."""
        for text in self.label_patterns:
            try:
                Pattern.parse(text)
            except FormatError as error:
                yield "label_patterns", str(error)
