"""Labels of jobs, and of containers without pods, and the families that describe them.

The labels of a pod are empty for them, except that a container has its name in the label
`container`. A job has its id in `hpc_job`, as in dcgm-exporter. Further labels exist only where
they are known. In the families with the label `pod_uid`, the label `owner_uid` identifies them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pipeline.exposition.naming import JOB_LABEL, PageNaming
from pipeline.exposition.text_format import labels
from pipeline.model import OwnerKind, PartialRef, PodInfo, owner_facts

UID_LABEL: Final = "owner_uid"

INFO_FAMILIES: Final = (
    ("podgpu_job_info", "Jobs that hold a device; always 1."),
    ("podgpu_podless_container_info", "Containers without a pod that hold a device; always 1."),
)

_FAMILIES: Final[Mapping[OwnerKind, str]] = {
    "job": "podgpu_job_info",
    "container": "podgpu_podless_container_info",
}
_READING_LABELS: Final = (
    "user",
    "account",
    "partition",
    "image",
    "compose_project",
    "compose_service",
)
_INFO_LABELS: Final = ("slurm_cluster", "job_name", "runtime", *_READING_LABELS)


def holder_names(subject: PartialRef) -> tuple[str, str, str]:
    """Return the values of the labels that name a pod and its container."""
    if subject.kind == "pod":
        return (subject.namespace, subject.pod, subject.container)
    return ("", "", subject.pod if subject.kind == "container" else "")


def identity_labels(subject: PartialRef) -> Iterator[tuple[str, str]]:
    """Yield `pod_uid`; for a job or a container without a pod also what identifies it."""
    is_pod = subject.kind == "pod"
    yield "pod_uid", subject.uid if is_pod else ""
    if not is_pod:
        if subject.kind == "job":
            yield JOB_LABEL, subject.pod
        yield UID_LABEL, subject.uid


def reading_labels(
    subject: PartialRef, info: PodInfo | None, naming: PageNaming, *, uid: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the further labels of a reading of a job, or of a container without a pod.

    A label that the configuration uses for a constant of the device is left out.

    Args:
        subject: the job or container.
        info: what is known of it.
        naming: the names on the page.
        uid: whether to add the uid; it is also added with `inline: [pod_uid]`.
    """
    used = {label for label, _ in naming.facts}
    if subject.kind == "job":
        yield JOB_LABEL, subject.pod
    if uid or "pod_uid" in naming.options.inline:
        yield UID_LABEL, subject.uid
    known = owner_facts(subject, info)
    for name in _READING_LABELS:
        if name in known and name not in used:
            yield name, known[name]


def info_line(subject: PartialRef, info: PodInfo | None, naming: PageNaming) -> tuple[str, bytes]:
    """Return the family and the line that describe a job or a container without a pod."""
    family = _FAMILIES[subject.kind]
    known = owner_facts(subject, info)
    name = JOB_LABEL if subject.kind == "job" else naming.names.container
    pairs = (
        (name, subject.pod),
        (UID_LABEL, subject.uid),
        *((fact, known[fact]) for fact in _INFO_LABELS if fact in known),
        *naming.on_node,
    )
    return family, b"%b{%b} 1\n" % (family.encode(), labels(pairs))
