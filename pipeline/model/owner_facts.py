"""What is known of a job, or of a container without a pod, by names that all sinks share."""

from collections.abc import Mapping

from pipeline.model.claims import PartialRef
from pipeline.model.owners import CONTAINER_FACTS, JOB_FACTS
from pipeline.model.pods import PodInfo


def owner_facts(subject: PartialRef, info: PodInfo | None) -> Mapping[str, str]:
    """Return what is known of a job or a container without a pod; nothing of a pod.

    Args:
        subject: the owner.
        info: what its source reports of it; None if that is unknown.

    Returns:
        The known facts in this order. Of a job: `slurm_cluster`, `job` (its id), `account`,
        `job_name`, `partition`, `user`. Of a container: `runtime` (`docker` or `podman`),
        `container` (its name), `compose_project`, `compose_service`, `image`.
    """
    labels = dict(info.labels) if info is not None else {}
    names: tuple[str, ...]
    if subject.kind == "job":
        own, names = {"slurm_cluster": subject.namespace, "job": subject.pod}, JOB_FACTS
    elif subject.kind == "container":
        runtime = subject.uid.partition("://")[0]
        own, names = {"runtime": runtime, "container": subject.pod}, CONTAINER_FACTS
    else:
        return {}
    own |= {name: labels.get(name, "") for name in names}
    return {name: text for name, text in own.items() if text}
