"""The table of trust: what each kind of evidence may do.

`docs/attribution.md` and `docs/security.md` contain this table.

The author of a pod controls its annotations, labels, variables and mounts, but not the ids that the
kubelet allocates, nor the device nodes and CDI names that the container runtime reports.
"""

from typing import Final, NamedTuple

from pipeline.model import Evidence


class EvidenceRule(NamedTuple):
    """The rule for one kind of evidence.

    Attributes:
        evidence: the kind of evidence.
        description: what it is, for people.
        pod_rank: rank between pods on one device; the pod with the lowest rank holds the device.
        permissions: what it may do, for people.
    """

    evidence: Evidence
    description: str
    pod_rank: int
    permissions: str


EVIDENCE_RULES: Final = (
    EvidenceRule(
        Evidence.RUNTIME_CDI,
        "a CDI name that the container runtime reports",
        4,
        "hold a device that the kubelet allocated to no other pod",
    ),
    EvidenceRule(
        Evidence.RUNTIME_NODES,
        "a device node that the container runtime reports",
        5,
        "hold a device that the kubelet allocated to no other pod",
    ),
    EvidenceRule(
        Evidence.PLUGIN_ANSWER,
        "the device plugin's response to the kubelet, where it differs from the request",
        1,
        "hold; replace the ids that the kubelet requested",
    ),
    EvidenceRule(
        Evidence.KUBELET_IDS,
        "the ids that the kubelet requested from the device plugin; placeholders define only "
        "resource and number",
        2,
        "hold; the id of a whole device excludes all other pods",
    ),
    EvidenceRule(
        Evidence.SCHEDULER_ANNOTATION,
        "a scheduler's annotation on a pod that requests that scheduler's resource, up to the "
        "number and share requested",
        6,
        "hold a device that no device plugin and no DRA driver offers under its real id, and that "
        "the kubelet allocated to no other pod",
    ),
    EvidenceRule(
        Evidence.POD_LIST_FILE,
        "podlist.json, written by the administrator",
        7,
        "hold a device that the kubelet allocated to no other pod",
    ),
    EvidenceRule(
        Evidence.RUNTIME_ENV,
        "the variable `NVIDIA_VISIBLE_DEVICES` or a mount of the running container",
        8,
        "hold only where the kubelet allocated placeholders to the container, no device plugin and "
        "no DRA driver offers the device under its real id, and no other evidence names the "
        "device; otherwise it is access",
    ),
    EvidenceRule(
        Evidence.JOB_ALLOCATION,
        "the GPUs that Slurm allocated to a job",
        3,
        "hold a device that the kubelet allocated to no pod; a share of 1 excludes all others",
    ),
    EvidenceRule(
        Evidence.DEVICE_REQUEST,
        "the GPUs that a container without a pod was started with: `--gpus`, CDI names, device "
        "nodes, or `NVIDIA_VISIBLE_DEVICES` with NVIDIA's runtime",
        9,
        "hold, together with other such containers, a device that no pod and no job has as a whole",
    ),
)
"""Sorted by strength for one container, the strongest first."""

CONTAINER_RANK: Final = {trust.evidence: rank for rank, trust in enumerate(EVIDENCE_RULES)}
"""Rank of a claim among all claims on one container; the lowest is valid."""

POD_RANK: Final = {trust.evidence: trust.pod_rank for trust in EVIDENCE_RULES}
"""Rank of a claim among the claims of several pods on one device; the lowest holds the device."""

USER_CONTROLLED: Final = frozenset(
    {Evidence.SCHEDULER_ANNOTATION, Evidence.POD_LIST_FILE, Evidence.RUNTIME_ENV}
)
"""Evidence of claims that are a conflict with the holder of the device even without effect."""

COUNT_ONLY_RESOURCES: Final = frozenset({"volcano.sh/gpu-number"})
"""Resources whose ids look like real ids and only count: the annotation names the GPU instead."""


def markdown_table() -> str:
    """Return the table of trust for the documentation, in Markdown."""
    rows = [
        f"| `{trust.evidence.name.lower()}` | {trust.description} | {trust.pod_rank} | "
        f"{trust.permissions} |"
        for trust in EVIDENCE_RULES
    ]
    head = "| `evidence` | what it is | rank between pods | may |"
    return "\n".join([head, "|---|---|---|---|", *rows]) + "\n"
