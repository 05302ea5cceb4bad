"""MIG instances by their place, for those who know no more of them.

A source that knows only where an instance is writes `MigPlace.name`: `MIG-<GPU>/<gi>/<ci>`, or
`MIG-<GPU>/<gi>` where it can't tell the compute instance. Another source may know the instance's
uuid. The two are one device, and which one is found here, from what is known, whoever came first.
"""

import re
from collections.abc import Iterable
from typing import Final

from pipeline.model import Device

_PLACE: Final = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,9})(?:/([0-9]{1,9}))?", re.IGNORECASE)


class MigPlacements:
    """The node's MIG instances by their place.

    Args:
        devices: all that any source knows of.
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
        """Return the uuid that the device goes by; `uuid` itself where it is no place.

        A GPU instance with one compute instance is that one; with several it is a device of its
        own.
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
