"""What a host engine knows of the GPUs, and what it has read. Blocking: it runs in a thread."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.fields import FieldPlan
from pipeline.fields.value_bounds import possible
from pipeline.model import Device, Instant, MigPlace, Reading
from sources.hostengine import field_ids, structs
from sources.hostengine.library import DcgmError, Session
from sources.hostengine.structs import Entity, FieldValue
from sources.hostengine.values import major, number, text

_HOPPER: Final = 9
"""Major compute capability of the first cards whose profiling fields NVML gives."""

_FIXES: Final = {
    -29: "; run the host engine as root",
    -33: "; install DCGM's profiling module beside the host engine",
    -34: "; another profiler has the counters: end it",
    -38: "; ask for fewer profiling fields at once",
}

_ABOUT: Final = (
    field_ids.UUID,
    field_ids.NAME,
    field_ids.INDEX,
    field_ids.MINOR,
    field_ids.PCI_BUS_ID,
    field_ids.COMPUTE_CAPABILITY,
)


class Target(NamedTuple):
    """An entity and the device that it is."""

    entity: Entity
    device: Device


@dataclass(slots=True)
class Round:
    """What one reading brought.

    Attributes:
        readings: of all devices that could be read.
        dropped: values that can't be used, by reason.
        faults: why a device could not be read, by uuid.
    """

    readings: list[Reading] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    faults: dict[str, DcgmError] = field(default_factory=dict)


class Engine:
    """A session and what it watches.

    Attributes:
        devices: all GPUs and MIG instances that the engine knows.
        unwatched: why the engine won't read a GPU, by uuid.

    Args:
        session: connected.
        plan: fields that are not in it are not watched.
        every: seconds between two readings.
        all_cards: also the GPUs whose fields NVML gives.

    Raises:
        DcgmError: the engine can't be asked.
    """

    def __init__(self, session: Session, plan: FieldPlan, every: float, *, all_cards: bool) -> None:
        self._session = session
        self._fields: Sequence[int] = tuple(field_ids.wanted(plan))
        self._read_at: dict[tuple[str, int], int] = {}
        self._layout = self._enumerate()
        self.unwatched: dict[str, str] = {}
        self._targets: list[Target] = []
        found: list[Device] = []
        for gpu in self._layout[0]:
            told = self._describe(gpu)
            if told is None:
                continue
            device, older = told
            targets = [Target(Entity(structs.GPU, gpu), device), *self._slices(gpu, device)]
            found += [target.device for target in targets]
            if self._fields and (older or all_cards):
                self._watch(gpu, targets, every)
        self.devices = tuple(found)
        if self._targets:
            session.update()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to read, by choice and not by a fault."""
        return not self._targets and not self.unwatched

    @property
    def reads_nothing(self) -> bool:
        """Whether the engine reads none of the GPUs that it was asked for."""
        return not self._targets and bool(self.unwatched)

    def read_again(self, at: Instant, good_for_ns: int) -> Round | None:
        """Read as `read` does; None if GPUs or MIG instances have come or gone since the start."""
        return None if self._enumerate() != self._layout else self.read(at, good_for_ns)

    def read(self, at: Instant, good_for_ns: int) -> Round:
        """Return what the engine has read since the last time.

        Raises:
            DcgmError: no device could be read.
        """
        done = Round()
        for target in self._targets:
            try:
                values = self._session.values(target.entity, self._fields)
            except DcgmError as error:
                done.faults[target.device.uuid] = error
            else:
                self._take(done, target.device.uuid, values, at, good_for_ns)
        if done.faults and len(done.faults) == len(self._targets):
            raise next(iter(done.faults.values()))
        return done

    def _take(
        self, done: Round, uuid: str, values: Iterable[FieldValue], at: Instant, good_for_ns: int
    ) -> None:
        for found in values:
            wanted = field_ids.PROFILING.get(found.field)
            if wanted is None or found.status or found.ts <= 0:
                continue
            place = (uuid, found.field)
            if self._read_at.get(place) == found.ts:
                continue  # the engine has not read it anew: what was emitted ages
            self._read_at[place] = found.ts
            value = number(found)
            if value is None:
                done.dropped["blank"] += 1
            elif not possible(wanted, value):
                done.dropped["out_of_range"] += 1
            else:
                read_at = _moment(found.ts, at, good_for_ns)
                done.readings.append(
                    Reading(uuid, wanted.name, (), value, None, read_at, good_for_ns)
                )

    def _enumerate(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return ids of GPUs, and of each instance what tells it from another.

        That is its kind and id, kind and id of its parent, GI, CI, profile and slices: an instance
        of another size may have the ids of the one before.
        """
        gpus = self._session.entities(structs.GPU)
        instances = self._session.instances()
        return gpus, tuple(
            (
                one.entity.kind,
                one.entity.id,
                one.parent.kind,
                one.parent.id,
                one.info.gi,
                one.info.ci,
                one.info.profile,
                one.info.slices,
            )
            for one in instances
        )

    def _describe(self, gpu: int) -> tuple[Device, bool] | None:
        """Return a GPU, and whether it is older than Hopper; None for one without a uuid."""
        values = self._session.values(Entity(structs.GPU, gpu), _ABOUT, live=True)
        known = {value.field: value for value in values if not value.status}
        uuid = text(known.get(field_ids.UUID))
        if not uuid:
            return None
        index, minor = (number(known.get(name)) for name in (field_ids.INDEX, field_ids.MINOR))
        device = Device(
            uuid,
            index=None if index is None else int(index),
            minor=None if minor is None else int(minor),
            pci_bus_id=text(known.get(field_ids.PCI_BUS_ID)),
            model=text(known.get(field_ids.NAME)),
        )
        return device, major(known.get(field_ids.COMPUTE_CAPABILITY)) < _HOPPER

    def _slices(self, gpu: int, parent: Device) -> Iterable[Target]:
        instances = self._layout[1]
        for kind, number_, parent_kind, parent_id, gi, *_ in instances:
            if kind != structs.INSTANCE or (parent_kind, parent_id) != (structs.GPU, gpu):
                continue
            inside = [
                ci
                for child, _, of_kind, of, _, ci, *_ in instances
                if (child, of_kind, of) == (structs.COMPUTE, structs.INSTANCE, number_)
            ]
            entity = Entity(structs.INSTANCE, number_)
            [name] = self._session.values(entity, (field_ids.NAME,), live=True)
            place = MigPlace(
                parent.uuid,
                gi,
                inside[0] if len(inside) == 1 else None,
                "" if name.status else text(name),
            )
            yield Target(
                entity,
                Device(
                    place.name,
                    parent.index,
                    parent.minor,
                    parent.pci_bus_id,
                    parent.model,
                    "",
                    place,
                ),
            )

    def _watch(self, gpu: int, targets: Sequence[Target], every: float) -> None:
        try:
            self._session.watch(
                f"podgpu-{gpu}", [target.entity for target in targets], self._fields, every
            )
        except DcgmError as error:
            mend = _FIXES.get(error.code, "")
            self.unwatched[targets[0].device.uuid] = f"{error}{mend}"
        else:
            self._targets += targets


def _moment(ts: int, now: Instant, most_ns: int) -> Instant:
    """Return when the engine read something, by its time stamp in microseconds.

    A stamp that lies in the future, or so far back that the reading would be worth nothing, comes
    from another clock than ours: then it counts as read now.
    """
    age_ns = now.wall_ns - ts * 1000
    if not 0 <= age_ns <= most_ns:
        return now
    return Instant(now.mono_ns - age_ns, now.wall_ns - age_ns)
