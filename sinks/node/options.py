"""Options of the node sink."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc, LeadsTo
from config.value_types import Duration
from pipeline.kube.name_rules import is_subdomain, key_problem


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which annotation of which Node is written, and how often."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; if not set, the pod's service account is used."),
    ] = None
    node: Annotated[
        str,
        Doc("Name of the Node whose annotation is written; empty for the one podgpu runs on."),
    ] = ""
    annotation: Annotated[
        str,
        Doc("Key of the annotation."),
    ] = "podgpu.io/topology"
    min_interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("Minimum time between two changes of the Node."),
    ] = Duration.parse("10s")
    refresh: Annotated[
        Duration,
        AtLeast("10s"),
        Doc("Time after which the annotation is written again, changed or not."),
    ] = Duration.parse("5m")
    remove: Annotated[
        Literal["never", "at_stop", "now"],
        Doc(
            "`never`: the annotation stays when the sink stops; `at_stop`: the sink removes it "
            "then; `now`: the sink removes it now and writes none."
        ),
    ] = "never"

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report names that Kubernetes rejects, and a `refresh` below `min_interval`."""
        if self.node and not is_subdomain(self.node):
            yield (
                "node",
                f'"{self.node}" is not the name of a Node: use one that kubectl get nodes shows',
            )
        if problem := key_problem(self.annotation):
            yield "annotation", problem
        if self.refresh < self.min_interval:
            text = f"{self.refresh} is below min_interval, which is {self.min_interval}"
            yield "refresh", f"{text}: set refresh to {self.min_interval} or more"

    def exclusive_on(self, node: str) -> Iterable[str]:
        """Return the resource that only one sink may use: two would overwrite one annotation."""
        return (f"the annotation {self.annotation} of the Node {self.node or node}",)
