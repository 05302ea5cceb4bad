"""MIG instances by placement, for sources that know nothing else of them.

A source that knows only the place of an instance writes `MigPlace.name`: `MIG-<GPU>/<gi>/<ci>`, or
`MIG-<GPU>/<gi>` where it does not know the compute instance. Another source may know the instance's
uuid. `MigPlacements` finds the uuid, independent of the order of the reports.
"""

import re
from collections.abc import Iterable
from typing import Final

from pipeline.model import Device

_PLACE: Final = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})(?:/([0-9]{1,9}))?", re.IGNORECASE)


class MigPlacements:
    """The node's MIG instances by placement.

    Args:
        devices: the devices of all sources.
    """

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self._uuids: dict[tuple[str, str], dict[int, set[str]]] = {}
        for device in devices:
            mig = device.mig
            if mig is None or mig.compute_instance_id is None:
                continue
            place = (mig.parent_uuid.lower(), str(mig.gpu_instance_id))
            instances = self._uuids.setdefault(place, {})
            instances.setdefault(mig.compute_instance_id, set()).add(device.uuid)

    def canonical_uuid(self, uuid: str) -> str:
        """Return the uuid of the MIG instance at the placement `uuid`.

        Return `uuid` itself if it is no placement, or if not exactly one instance is known there. A
        placement without a compute instance means the GPU instance's only compute instance. If the
        GPU instance has several, the placement is a device of its own.
        """
        if "/" not in uuid or (match := _PLACE.fullmatch(uuid)) is None:
            return uuid
        instances = self._uuids.get((match[1].lower(), match[2]), {})
        if match[3] is not None:
            known = instances.get(int(match[3]), set())
        elif len(instances) == 1:
            [known] = instances.values()
        else:
            return uuid
        known = {name for name in known if _PLACE.fullmatch(name) is None} or known
        return next(iter(known)) if len(known) == 1 else uuid
