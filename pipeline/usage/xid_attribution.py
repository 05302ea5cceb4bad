"""Attribution of XID errors to the containers that held or used the device at that time."""

from typing import NamedTuple

from pipeline.model import PodInfo
from pipeline.usage.device_account import DeviceAccount
from pipeline.usage.holding import count_xid
from pipeline.usage.interval_samples import ContainerName


class AffectedContainer(NamedTuple):
    """A container that was on a device when an XID error occurred.

    Attributes:
        container: its name.
        pod: what is known of its pod.
        holds: whether it held the device.
        uses: whether it had processes there, according to the samples around that moment.
    """

    container: ContainerName
    pod: PodInfo | None
    holds: bool
    uses: bool


def affected_containers(account: DeviceAccount, moment_ns: int) -> list[AffectedContainer]:
    """Return the containers that held or used a device at a moment, sorted.

    Holders are known without usage samples, for at least a minute.
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
    """Count an XID error for a container, and for its holding at that moment.

    A final holding is not changed.
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
