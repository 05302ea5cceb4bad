"""Whom an XID error on a device strikes: those who held or used it at that moment."""

from typing import NamedTuple

from pipeline.model import PodInfo
from pipeline.usage.device_account import DeviceAccount
from pipeline.usage.holding import count
from pipeline.usage.interval_samples import Name


class Struck(NamedTuple):
    """A container that was on a device.

    Attributes:
        container: its name.
        pod: what is known of its pod.
        holds: it held the device.
        uses: it had processes there, by the looks around that moment.
    """

    container: Name
    pod: PodInfo | None
    holds: bool
    uses: bool


def struck(account: DeviceAccount, moment_ns: int) -> list[Struck]:
    """Return who held or used a device at a moment, sorted; no further back than a minute.

    Holders are known where nobody looks at processes, too.
    """
    found = {
        held.container: Struck(held.container, held.pod, holds=True, uses=False)
        for held in account.timeline.at(moment_ns)
    }
    for entry in account.roster:
        if entry.used_at(moment_ns):
            holds = entry.name in found
            found[entry.name] = Struck(entry.name, entry.pod, holds, uses=True)
    return [found[container] for container in sorted(found)]


def strike(account: DeviceAccount, container: Name, code: int, moment_ns: int) -> None:
    """Count an error of a container's, and of its holding of that moment.

    A holding that has been told of already is final: it isn't counted there.
    """
    entry = account.roster.get(container)
    if entry is None:
        return
    count(entry.xids, code)
    for one in reversed(entry.open()):
        end = one.end
        if one.start.mono_ns <= moment_ns and (end is None or moment_ns <= end.mono_ns):
            count(one.xids, code)
            break
    account.altered()
