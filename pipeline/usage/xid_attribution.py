"""Whom an XID error on a device strikes: those who held or used it at that moment."""

from typing import NamedTuple

from pipeline.model import PodInfo
from pipeline.usage.device_account import DeviceAccount
from pipeline.usage.holding import count_xid
from pipeline.usage.interval_samples import ContainerName


class AffectedContainer(NamedTuple):
    """A container that was on a device.

    Attributes:
        container: its name.
        pod: what is known of its pod.
        holds: it held the device.
        uses: it had processes there, by the looks around that moment.
    """

    container: ContainerName
    pod: PodInfo | None
    holds: bool
    uses: bool


def affected_containers(account: DeviceAccount, moment_ns: int) -> list[AffectedContainer]:
    """Return who held or used a device at a moment, sorted; no further back than a minute.

    Holders are known where nobody looks at processes, too.
    """
    found = {
        held.container: AffectedContainer(held.container, held.pod, holds=True, uses=False)
        for held in account.timeline.at(moment_ns)
    }
    for entry in account.containers:
        if entry.used_at(moment_ns):
            holds = entry.name in found
            found[entry.name] = AffectedContainer(entry.name, entry.pod, holds, uses=True)
    return [found[container] for container in sorted(found)]


def count_container_xid(
    account: DeviceAccount, container: ContainerName, code: int, moment_ns: int
) -> None:
    """Count an error of a container's, and of its holding of that moment.

    A holding that has been told of already is final: it isn't counted there.
    """
    entry = account.containers.get(container)
    if entry is None:
        return
    count_xid(entry.xids, code)
    for one in reversed(entry.open_holdings()):
        end = one.end
        if one.start.mono_ns <= moment_ns and (end is None or moment_ns <= end.mono_ns):
            count_xid(one.xids, code)
            break
    account.invalidate_usage()
