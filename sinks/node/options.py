"""Options of the node sink."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc, LeadsTo
from config.value_types import Duration
from pipeline.kube.name_rules import is_subdomain, key_problem


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which annotation of which Node is kept, and how often it is written."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; none for those of the pod that podgpu runs in."),
    ] = None
    node: Annotated[
        str,
        Doc("Name of the Node that is annotated; empty for the one that podgpu runs on."),
    ] = ""
    annotation: Annotated[
        str,
        Doc("The annotation's key."),
    ] = "podgpu.io/topology"
    min_interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("The Node is changed at most once in this time."),
    ] = Duration.parse("10s")
    refresh: Annotated[
        Duration,
        AtLeast("10s"),
        Doc("After this time the annotation is written again, changed or not."),
    ] = Duration.parse("5m")
    remove: Annotated[
        Literal["never", "at_stop", "now"],
        Doc(
            "Leave the annotation when the sink stops, take it away then, or take away what is "
            "there now and write none."
        ),
    ] = "never"

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse names that Kubernetes refuses, and a refresh that could never be kept."""
        if self.node and not is_subdomain(self.node):
            yield (
                "node",
                f'"{self.node}" is no name of a Node: take one that kubectl get nodes shows',
            )
        if wrong := key_problem(self.annotation):
            yield "annotation", wrong
        if self.refresh < self.min_interval:
            told = f"{self.refresh} is below min_interval, which is {self.min_interval}"
            yield "refresh", f"{told}: set refresh to {self.min_interval} or more"

    def exclusive_on(self, node: str) -> Iterable[str]:
        """Two that write one annotation would take turns for ever."""
        return (f"the annotation {self.annotation} of the Node {self.node or node}",)
