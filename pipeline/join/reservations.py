"""Devices that a pod got from the kubelet for others to share."""

from collections.abc import Iterable, Iterator

from pipeline.join.claim_resolution import PodKey, Word
from pipeline.join.device_index import Found
from pipeline.model import Evidence

_FROM_KUBELET = (Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS)


def share(sharing: Iterable[Word], reservations: Iterable[Word]) -> Iterator[Word]:
    """Yield the words of pods that share reserved devices, with the devices found.

    A word that names no reservation of this node is left out: then the pod shares nothing here.

    Args:
        sharing: what is said of pods that share.
        reservations: what is said of reservation pods.
    """
    got = _got(reservations)
    for word in sharing:
        uuids = {uuid for raw in word.claim.devices for uuid in got.get(raw.text, ())}
        if uuids:
            yield word._replace(found=[Found(uuid, reserved=True) for uuid in sorted(uuids)])


def _got(reservations: Iterable[Word]) -> dict[str, set[str]]:
    """Return by group what its reservation pods got.

    The ids that the kubelet gave out count. What a reservation pod wrote on itself counts where no
    source tells of such an id.
    """
    said: dict[PodKey, list[Word]] = {}
    for word in reservations:
        subject = word.subject
        said.setdefault((subject.namespace, subject.pod, subject.uid), []).append(word)
    got: dict[str, set[str]] = {}
    for words in said.values():
        real = [word for word in words if word.real]
        given = [word for word in real if word.evidence in _FROM_KUBELET]
        annotated = [word for word in real if word.evidence == Evidence.SCHEDULER_ANNOTATION]
        answered = [word for word in given if word.evidence == Evidence.PLUGIN_ANSWER]
        uuids = {
            found.uuid
            for word in answered or given or annotated
            for found in word.found
            if not found.placeholder
        }
        for word in words:
            for group in word.pod.reserves if word.pod is not None else ():
                got.setdefault(group, set()).update(uuids)
    return got
