"""Names of the labels and metrics on a page, for a configuration."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.exposition.options import LabelForm, PageOptions
from pipeline.fields import CATALOGUE, FieldPlan, Row

# Prometheus reserves names that begin with two underscores.
_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OWN: Final = "podgpu_"


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Label names that differ between releases of dcgm-exporter.

    Attributes:
        first_metrics: whether to use the metric names of dcgm-exporter 1.x.
    """

    uuid: str = "UUID"
    hostname: str = "Hostname"
    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    first_metrics: bool = False

    @property
    def holder(self) -> tuple[str, str, str]:
        """The labels that identify a container, in the order of the page."""
        return (self.namespace, self.pod, self.container)


_OLD: Final = ("uuid", "Hostname", "pod_namespace", "pod_name", "container_name")
FORMS: Final[Mapping[LabelForm, LabelNames]] = {
    "dcgm": LabelNames(),
    "dcgm-hostname": LabelNames(hostname="hostname"),
    "dcgm-old": LabelNames(*_OLD),
    "dcgm-1x": LabelNames(*_OLD, first_metrics=True),
}

GPU_LABELS: Final = ("gpu", "pci_bus_id", "device", "modelName")
MIG_LABELS: Final = ("GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID")
REPLICA_LABEL: Final = "vgpu"
JOB_LABEL: Final = "hpc_job"
CLAIM_LABELS: Final = (
    "dra_claim_name",
    "dra_claim_namespace",
    "dra_driver_name",
    "dra_pool_name",
    "dra_device_name",
)
CLAIMED_MIG_LABELS: Final = ("dra_mig_profile", "dra_mig_device_uuid")
XID_LABELS: Final = ("err_code", "err_msg")
POD_LABELS: Final = ("pod_uid", "phase", "owner_kind", "owner_name", "qos_class")


class PageNaming:
    """The names on a page, for a configuration.

    Attributes:
        options: the configured options.
        names: label names that depend on the option `labels`.
        facts: (label, constant field) pairs that are added to every series with a DCGM name.
        fixed: all label names that a reading can have, except names of pod labels and of fields'
            attributes.
        node: name of the node.

    Args:
        options: the configured options.
        plan: the fields on the page. A label row is ignored if its label is invalid or already in
            use.
        node: name of the node.
    """

    def __init__(self, options: PageOptions, plan: FieldPlan, node: str) -> None:
        self.options = options
        self.names = names = FORMS[options.labels]
        self.node = node
        fixed = {*GPU_LABELS, names.uuid, *MIG_LABELS, names.hostname, *names.holder}
        fixed |= {REPLICA_LABEL, JOB_LABEL, *XID_LABELS, *POD_LABELS}
        fixed |= {*CLAIM_LABELS, *CLAIMED_MIG_LABELS}
        attrs = {name for field in CATALOGUE for name in field.attrs}
        facts: dict[str, str] = {}
        for row in plan.labels:
            if _NAME.fullmatch(row.label) and row.label not in fixed | attrs:
                facts.setdefault(row.label, row.field)
        self.facts = tuple(facts.items())
        self.fixed = frozenset(fixed | facts.keys())
        self._reserved = self.fixed | attrs

    def metric(self, row: Row) -> str:
        """Return the name of the metric family of a row."""
        first = row.field.dcgm_1x if self.names.first_metrics else ""
        return row.metric or first or row.field.metric

    @staticmethod
    def is_own(metric: str) -> bool:
        """Whether a metric family has podgpu's prefix, and so podgpu's labels and base units."""
        return metric.startswith(_OWN)

    def help_text(self, row: Row) -> str:
        """Return the help text of a row's metric family; it names DCGM's unit if DCGM's is used."""
        field = row.field
        unit = field.unit_in(self.metric(row)).unit
        if row.help or unit == field.unit:
            return row.help or field.help
        about = field.help.replace(f", in {field.unit}.", ".")
        return f"{about} As a ratio." if unit == "ratio" else f"{about} In {unit}."

    @property
    def on_node(self) -> tuple[tuple[str, str], ...]:
        """The label with the node's name; empty if the option `hostname` is off."""
        return ((self.names.hostname, self.node),) if self.options.hostname else ()

    def unused_label_name(self, name: str) -> str:
        """Return a name for a pod label that is different from the names of the other labels.

        Args:
            name: the preferred name, of letters, digits and underscores.
        """
        if not name or name[0].isdigit():
            name = f"_{name}"
        # Prometheus reserves names that begin with two underscores.
        while name in self._reserved or name.startswith("__"):
            # As in dcgm-exporter, which has no other prefix.
            name = f"label_{name}" if self.options.pod_label_prefix else f"pod_label_{name}"
        return name
