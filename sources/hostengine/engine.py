"""The GPUs of a host engine, and the values that it reads. Blocking: for use in a thread."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pipeline.fields import CATALOGUE, Field, FieldPlan
from pipeline.fields.value_bounds import possible
from pipeline.model import Device, Instant, MigPlace, Reading
from sources.hostengine import structs
from sources.hostengine.library import DcgmError, Session
from sources.hostengine.options import Options
from sources.hostengine.structs import Entity, FieldValue, major, number, text

NAME: Final = 50
INDEX: Final = 52
UUID: Final = 54
MINOR: Final = 55
PCI_BUS_ID: Final = 57
COMPUTE_CAPABILITY: Final = 63

_PROFILING: Final = "DCGM_FI_PROF_"
_ORDER: Final = (
    "GR_ENGINE_ACTIVE",
    "SM_ACTIVE",
    "SM_OCCUPANCY",
    "PIPE_TENSOR_ACTIVE",
    "DRAM_ACTIVE",
    "PIPE_FP64_ACTIVE",
    "PIPE_FP32_ACTIVE",
    "PIPE_FP16_ACTIVE",
    "PCIE_TX_BYTES",
    "PCIE_RX_BYTES",
    "NVLINK_TX_BYTES",
    "NVLINK_RX_BYTES",
    "PIPE_TENSOR_IMMA_ACTIVE",
    "PIPE_TENSOR_HMMA_ACTIVE",
    "PIPE_TENSOR_DFMA_ACTIVE",
    "PIPE_INT_ACTIVE",
    *(f"NVDEC{engine}_ACTIVE" for engine in range(8)),
    *(f"NVJPG{engine}_ACTIVE" for engine in range(8)),
    *(f"NVOFA{engine}_ACTIVE" for engine in range(2)),
)
_IDS: Final = {f"{_PROFILING}{name}": number for number, name in enumerate(_ORDER, 1001)}

PROFILING: Final[Mapping[int, Field]] = {
    _IDS[field.dcgm]: field for field in CATALOGUE if field.dcgm in _IDS
}
"""podgpu's profiling fields, by DCGM's id of the field."""

_HOPPER: Final = 9
"""Major compute capability of the first GPUs whose profiling fields NVML provides."""

_FIXES: Final = {
    -29: "; run the host engine as root",
    -33: "; install DCGM's profiling module with the host engine",
    -34: "; another profiler uses the counters: stop it",
    -38: "; request fewer profiling fields",
}

_DESCRIPTION_FIELDS: Final = (
    UUID,
    NAME,
    INDEX,
    MINOR,
    PCI_BUS_ID,
    COMPUTE_CAPABILITY,
)


class Target(NamedTuple):
    """An entity of DCGM and its device."""

    entity: Entity
    device: Device


@dataclass(slots=True)
class Round:
    """The result of one read.

    Attributes:
        readings: readings of all devices that were read.
        dropped: number of unusable values, by reason.
        faults: why a device was not read, by uuid.
    """

    readings: list[Reading] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    faults: dict[str, DcgmError] = field(default_factory=dict)


class Engine:
    """A session and the fields that it watches.

    Attributes:
        devices: all GPUs and MIG instances of the host engine.
        unwatched: why the host engine refused to watch the fields of a GPU, by uuid.

    Args:
        session: a connected session.
        plan: the requested fields.
        options: the interval, and whether to read also Hopper and newer GPUs, which NVML can read.

    Raises:
        DcgmError: a query of the host engine failed.
    """

    def __init__(self, session: Session, plan: FieldPlan, options: Options) -> None:
        self._session = session
        self._fields: Sequence[int] = tuple(
            number for number, spec in PROFILING.items() if spec.name in plan
        )
        self._read_at: dict[tuple[str, int], int] = {}
        self._layout = self._enumerate()
        self.unwatched: dict[str, str] = {}
        self._targets: list[Target] = []
        found: list[Device] = []
        for gpu in self._layout[0]:
            description = self._describe(gpu)
            if description is None:
                continue
            device, is_older = description
            targets = [Target(Entity(structs.GPU, gpu), device), *self._slices(gpu, device)]
            found += [target.device for target in targets]
            if self._fields and (is_older or options.fields == "all"):
                self._watch(gpu, targets, float(options.interval))
        self.devices = tuple(found)
        if self._targets:
            session.update()

    @property
    def reads_any(self) -> bool:
        """Whether the host engine watches the fields of a GPU."""
        return bool(self._targets)

    def read_again(self, at: Instant, good_for_ns: int) -> Round | None:
        """Read as `read` does; None if the GPUs or MIG instances have changed since the start."""
        return None if self._enumerate() != self._layout else self.read(at, good_for_ns)

    def read(self, at: Instant, good_for_ns: int) -> Round:
        """Return the values that the host engine has read since the last call, and the faults.

        Raises:
            DcgmError: no device could be read.
        """
        result = Round()
        for target in self._targets:
            try:
                values = self._session.values(target.entity, self._fields)
            except DcgmError as error:
                result.faults[target.device.uuid] = error
            else:
                self._add_values(result, target.device.uuid, values, at, good_for_ns)
        if result.faults and len(result.faults) == len(self._targets):
            raise next(iter(result.faults.values()))
        return result

    def _add_values(
        self, result: Round, uuid: str, values: Iterable[FieldValue], at: Instant, good_for_ns: int
    ) -> None:
        for found in values:
            spec = PROFILING.get(found.field)
            if spec is None or found.status or found.ts <= 0:
                continue
            place = (uuid, found.field)
            if self._read_at.get(place) == found.ts:
                continue  # unchanged: the emitted reading expires in time
            self._read_at[place] = found.ts
            value = number(found)
            if value is None:
                result.dropped["blank"] += 1
            elif not possible(spec, value):
                result.dropped["out_of_range"] += 1
            else:
                read_at = _read_time(found.ts, at, good_for_ns)
                result.readings.append(
                    Reading(uuid, spec.name, (), value, None, read_at, good_for_ns)
                )

    def _enumerate(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return the ids of the GPUs, and for each MIG instance the values that identify it.

        These are its kind and id, kind and id of its parent, GI, CI, profile and slices: a new
        instance of another size may have the ids of an earlier one.
        """
        gpus = self._session.entities(structs.GPU)
        instances = self._session.instances()
        return gpus, tuple(
            (*_ids(each.entity), *_ids(each.parent), info.gi, info.ci, info.profile, info.slices)
            for each in instances
            for info in (each.info,)
        )

    def _describe(self, gpu: int) -> tuple[Device, bool] | None:
        """Return a GPU and whether it is older than Hopper; None for a GPU without a uuid."""
        values = self._session.values(Entity(structs.GPU, gpu), _DESCRIPTION_FIELDS, live=True)
        by_field = {value.field: value for value in values if not value.status}
        uuid = text(by_field.get(UUID))
        if not uuid:
            return None
        index, minor = (number(by_field.get(name)) for name in (INDEX, MINOR))
        device = Device(
            uuid,
            index=None if index is None else int(index),
            minor=None if minor is None else int(minor),
            pci_bus_id=text(by_field.get(PCI_BUS_ID)),
            model=text(by_field.get(NAME)),
        )
        return device, major(by_field.get(COMPUTE_CAPABILITY)) < _HOPPER

    def _slices(self, gpu: int, parent: Device) -> Iterable[Target]:
        instances = self._layout[1]
        for kind, number_, parent_kind, parent_id, gi, *_ in instances:
            if kind != structs.INSTANCE or (parent_kind, parent_id) != (structs.GPU, gpu):
                continue
            compute_instances = [
                ci
                for child, _, of_kind, of, _, ci, *_ in instances
                if (child, of_kind, of) == (structs.COMPUTE, structs.INSTANCE, number_)
            ]
            entity = Entity(structs.INSTANCE, number_)
            [name] = self._session.values(entity, (NAME,), live=True)
            place = MigPlace(
                parent.uuid,
                gi,
                compute_instances[0] if len(compute_instances) == 1 else None,
                "" if name.status else text(name),
            )
            yield Target(entity, replace(parent, uuid=place.name, mig=place))

    def _watch(self, gpu: int, targets: Sequence[Target], every: float) -> None:
        try:
            self._session.watch(
                f"podgpu-{gpu}", [target.entity for target in targets], self._fields, every
            )
        except DcgmError as error:
            fix = _FIXES.get(error.code, "")
            self.unwatched[targets[0].device.uuid] = f"{error}{fix}"
        else:
            self._targets += targets


def _read_time(ts: int, now: Instant, limit_ns: int) -> Instant:
    """Return when the host engine read a value, from its time stamp in microseconds.

    A time stamp in the future, or older than the reading is valid, must come from another clock.
    The value then counts as read now.
    """
    age_ns = now.wall_ns - ts * 1000
    if not 0 <= age_ns <= limit_ns:
        return now
    return Instant(now.mono_ns - age_ns, now.wall_ns - age_ns)


def _ids(entity: Entity) -> tuple[int, int]:
    return entity.kind, entity.id
