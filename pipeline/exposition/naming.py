"""What the page is to look like: the names of labels and metrics."""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pipeline.exposition.options import LabelForm, PageOptions
from pipeline.fields import CATALOGUE, FieldPlan, Row

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN: Final = "podgpu_"


@dataclass(frozen=True, slots=True)
class LabelNames:
    """What dcgm-exporter has called the same things at different times.

    Attributes:
        first_metrics: metrics have the names of its releases 1.x.
    """

    uuid: str = "UUID"
    hostname: str = "Hostname"
    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    first_metrics: bool = False

    @property
    def holder(self) -> tuple[str, str, str]:
        """The labels that name a container, in the order of the page."""
        return (self.namespace, self.pod, self.container)


_OLD: Final = ("uuid", "Hostname", "pod_namespace", "pod_name", "container_name")
FORMS: Final = MappingProxyType[LabelForm, LabelNames](
    {
        "dcgm": LabelNames(),
        "dcgm-hostname": LabelNames(hostname="hostname"),
        "dcgm-old": LabelNames(*_OLD),
        "dcgm-1x": LabelNames(*_OLD, first_metrics=True),
    }
)

GPU_LABELS: Final = ("gpu", "pci_bus_id", "device", "modelName")
MIG_LABELS: Final = ("GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID")
COPY_LABEL: Final = "vgpu"
XID_LABELS: Final = ("err_code", "err_msg")
POD_LABELS: Final = ("pod_uid", "phase", "owner_kind", "owner_name", "qos_class")


class PageNaming:
    """The names on a page, for a configuration.

    Attributes:
        options: what was configured.
        names: of labels that differ between the forms.
        facts: labels that stand on every series in DCGM's names, and the fact that each shows.
        fixed: names that readings' labels can have without any pod's doing.
        node: the node's name.

    Args:
        plan: the fields on the page; its label rows that can be no label, or that have the name of
            another, are left out.
    """

    def __init__(self, options: PageOptions, plan: FieldPlan, node: str) -> None:
        self.options = options
        self.names = names = FORMS[options.labels]
        self.node = node
        fixed = {*GPU_LABELS, names.uuid, *MIG_LABELS, names.hostname, *names.holder}
        fixed |= {COPY_LABEL, *XID_LABELS, *POD_LABELS}
        attrs = {name for field in CATALOGUE for name in field.attrs}
        facts: dict[str, str] = {}
        for row in plan.labels:
            if _NAME.fullmatch(row.label) and row.label not in fixed | attrs:
                facts.setdefault(row.label, row.field)
        self.facts = tuple(facts.items())
        self.fixed = frozenset(fixed | facts.keys())
        self._reserved = self.fixed | attrs

    def metric(self, row: Row) -> str:
        """Return the name of a field's family."""
        first = row.field.dcgm_1x if self.names.first_metrics else ""
        return row.metric or first or row.field.metric

    @staticmethod
    def is_own(metric: str) -> bool:
        """Whether a family is in podgpu's names, labels and base units; else it is in DCGM's."""
        return metric.startswith(_OWN)

    @property
    def on_node(self) -> tuple[tuple[str, str], ...]:
        """The label that names the node, unless it isn't wanted."""
        return ((self.names.hostname, self.node),) if self.options.hostname else ()

    def unused_label_name(self, name: str) -> str:
        """Return a name that a pod's label can have beside all of the page's own.

        Args:
            name: letters, digits and underscores.
        """
        if not name or name[0].isdigit():
            name = f"_{name}"
        # Names that begin with two underscores are Prometheus' own.
        while name in self._reserved or name.startswith("__"):
            name = f"label_{name}"
        return name
