"""The one rule of trust: what each kind of evidence may do.

`docs/attribution.md` and `docs/security.md` have the same table.

A pod's author controls its annotations, labels, variables and mounts. He doesn't control which ids
the kubelet gives out, nor what the container runtime shows of device nodes and CDI names.
"""

from typing import Final, NamedTuple

from pipeline.model import Evidence


class EvidenceRule(NamedTuple):
    """What one kind of evidence may do.

    Attributes:
        evidence: the kind, in the order of its strength for one container: strongest first.
        description: what it is.
        pod_rank: its rank between pods on one device; the lower one holds the device.
        permissions: what it may do, for people.
    """

    evidence: Evidence
    description: str
    pod_rank: int
    permissions: str


EVIDENCE_RULES: Final = (
    EvidenceRule(
        Evidence.RUNTIME_CDI,
        "a CDI name that the container runtime shows",
        3,
        "hold a device that the kubelet gave to no other pod",
    ),
    EvidenceRule(
        Evidence.RUNTIME_NODES,
        "a device node that the container runtime shows",
        4,
        "hold a device that the kubelet gave to no other pod",
    ),
    EvidenceRule(
        Evidence.PLUGIN_ANSWER,
        "what the device plugin answered the kubelet, where it differs from what was asked",
        1,
        "hold; replace the ids that were asked for",
    ),
    EvidenceRule(
        Evidence.KUBELET_IDS,
        "the ids that the kubelet asked the device plugin for; placeholders fix only resource and "
        "number",
        2,
        "hold; the id of a whole device excludes all other pods",
    ),
    EvidenceRule(
        Evidence.SCHEDULER_ANNOTATION,
        "a scheduler's annotation on a pod that requests that scheduler's resource, up to the "
        "number and share requested",
        5,
        "hold a device that no device plugin and no DRA driver offers by its real id, and that the "
        "kubelet gave to no other pod",
    ),
    EvidenceRule(
        Evidence.POD_LIST_FILE,
        "podlist.json, the administrator's",
        6,
        "hold a device that the kubelet gave to no other pod",
    ),
    EvidenceRule(
        Evidence.RUNTIME_ENV,
        "the variable `NVIDIA_VISIBLE_DEVICES` or a mount of the running container",
        7,
        "hold only where the kubelet gave the container placeholders, no device plugin and no DRA "
        "driver offers the device by its real id, and nothing else says which; else it is access",
    ),
)
"""Strongest first, for one container."""

CONTAINER_RANK: Final = {trust.evidence: rank for rank, trust in enumerate(EVIDENCE_RULES)}
"""Rank of what is said of one container; the lowest stands."""

POD_RANK: Final = {trust.evidence: trust.pod_rank for trust in EVIDENCE_RULES}
"""Rank of what is said of several pods on one device; the lowest stands."""

USER_CONTROLLED: Final = frozenset(
    {Evidence.SCHEDULER_ANNOTATION, Evidence.POD_LIST_FILE, Evidence.RUNTIME_ENV}
)
"""What contradicts a pod that holds the device, even where it is overruled for its own pod."""

COUNT_ONLY_RESOURCES: Final = frozenset({"volcano.sh/gpu-number"})
"""Resources whose ids look like real ones and only count: the plugin goes by the annotation."""


def markdown_table() -> str:
    """Return the rule as the table of the documentation, in Markdown."""
    rows = [
        f"| `{trust.evidence.name.lower()}` | {trust.description} | {trust.pod_rank} | "
        f"{trust.permissions} |"
        for trust in EVIDENCE_RULES
    ]
    head = "| `evidence` | what it is | rank between pods | may |"
    return "\n".join([head, "|---|---|---|---|", *rows]) + "\n"
