"""Format of the usage from a ledger in the status document."""

import msgspec

from pipeline.status_page.use_format import Count, Figure, Moment


class PeriodStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of all devices in an hour or a day (UTC), from a ledger.

    Attributes:
        since: start of the period.
        until: end of the period; of the current one the end of its usage data.
        allocated_ratio: fraction of the devices' time in which they were held; null if unknown.
        used_ratio: fraction of the devices' time in which they were busy; null if unknown.
        busy_seconds: busy time. It and the following three are parts of all time with usage data.
        idle_seconds: held time that was not busy.
        free_seconds: time in which the devices were free.
        unknown_seconds: time for which the holders, or the busy part of the held time, are unknown.
        energy_joules: energy of all devices; null if unknown.
    """

    since: Moment
    until: Moment
    allocated_ratio: Figure | None
    used_ratio: Figure | None
    busy_seconds: Figure
    idle_seconds: Figure
    free_seconds: Figure
    unknown_seconds: Figure
    energy_joules: Figure | None


class AmountsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one device, of one pod, or of several devices or pods together.

    Attributes:
        held_seconds: time for which containers held a device, multiplied by their share.
        free_seconds: time for which a device was free, multiplied by the free part.
        unknown_seconds: time for which it is unknown who held a device.
        allocated_ratio: fraction of the devices' time in which they were held; null if unknown.
        used_ratio: fraction of the devices' time in which they were busy; null if unknown.
        busy_seconds: busy time; null if unknown.
        busy_error_seconds: by how much `busy_seconds` may be wrong, because devices were shared; 0
            for all usage of devices, null if unknown.
        idle_seconds: held time minus busy time; negative if devices were busy for longer than they
            were held; null if unknown.
        energy_joules: energy in joules; null if unknown.
        holdings: number of holdings.
        incomplete: whether a part of a value is unknown and missing.
    """

    held_seconds: Figure
    free_seconds: Figure
    unknown_seconds: Figure
    allocated_ratio: Figure | None
    used_ratio: Figure | None
    busy_seconds: Figure | None
    busy_error_seconds: Figure | None
    idle_seconds: Figure | None
    energy_joules: Figure | None
    holdings: Count
    incomplete: bool


class PodAmountsStatus(AmountsStatus, frozen=True, kw_only=True):
    """Usage of a pod.

    Attributes:
        namespace: namespace of the pod.
        pod: name of the pod.
        uid: UID of the pod.
    """

    namespace: str | None
    pod: str | None
    uid: str | None


class DeviceAmountsStatus(AmountsStatus, frozen=True, kw_only=True):
    """Usage of a device by all containers, and its unattributed usage.

    Attributes:
        uuid: UUID of the device.
        name: model, or MIG profile with the model of its GPU.
    """

    uuid: str
    name: str | None


class DayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the last 24 hours. The first hour is included completely.

    Attributes:
        since: start of the time span.
        until: end of the time span.
        accounted_seconds: time with usage data, summed over all devices.
        gap_seconds: time without usage data, summed over all devices.
        pods: the pods with the most held time.
        others: usage of all other pods together; null if there are none.
        pods_left_out: number of other pods.
        unattributed: usage that belongs to no known pod.
        total: usage of the whole node.
        devices: all devices with usage data, in the order of `gpus`. Devices that are not present
            any more come last.
        devices_left_out: number of further devices.
    """

    since: Moment
    until: Moment
    accounted_seconds: Figure
    gap_seconds: Figure
    pods: tuple[PodAmountsStatus, ...]
    others: AmountsStatus | None
    pods_left_out: Count
    unattributed: AmountsStatus
    total: AmountsStatus
    devices: tuple[DeviceAmountsStatus, ...] = ()
    devices_left_out: Count = 0


class UsageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Usage data from a ledger.

    Attributes:
        sink: name of the ledger's sink in the configuration.
        age_seconds: age of the last result; null before the first result.
        error: error of the last query; null if the query succeeded.
        day: the last result; null before the first result, or if the ledger has no data for this
            time.
        hours: hours of the last 24 with usage data, the oldest first.
        days: days (UTC) of the last 28 with usage data, the oldest first.
        sample_data: what made the data up, such as `podgpu demo`; null if the data was measured, or
            before the first result.
    """

    sink: str
    age_seconds: Figure | None
    error: str | None
    day: DayStatus | None
    hours: tuple[PeriodStatus, ...] = ()
    days: tuple[PeriodStatus, ...] = ()
    sample_data: str | None = None
