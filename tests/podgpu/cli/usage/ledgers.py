"""Write a ledger of one day as podgpu does, hour by hour, with two gaps and a restart."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.model import ContainerUsage, DeviceUsage, Holding, Instant, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, moved
from tests.support.nodes import START, uuid_of
from tests.support.usage import account, holding, used

HOUR: Final = 3600
NS: Final = 10**9
GIB: Final = 1 << 30
LAST: Final = 23
"""The hour of the last usage sample, counted from the start."""

_IDLE_WATTS: Final = 70
_RESTART: Final = 12
_GAPS: Final = ((11.0, 180, (0, 1)), (14.0, 600, (0,)))
"""Start in hours, length in seconds and GPUs of each gap without usage samples."""


@dataclass(frozen=True)
class Piece:
    """A container's time on a GPU: hours from the start, share, busy ratio, power and memory."""

    gpu: int
    pod: str
    namespace: str
    container: str
    start: float
    end: float
    share: float
    busy: float | None
    watts: int
    gib: int
    owner: tuple[str, str] = ("", "")
    team: str = ""
    uid: str = ""
    xids: tuple[tuple[int, int], ...] = ()

    @property
    def info(self) -> PodInfo:
        labels = (("team", self.team),) if self.team else ()
        kind, name = self.owner
        return PodInfo(
            self.uid or f"u-{self.pod}",
            self.namespace,
            self.pod,
            owner_kind=kind,
            owner_name=name,
            labels=labels,
        )


_JOB: Final = ("Job", "train")
PIECES: Final = (
    Piece(0, "train-0", "ml", "main", 0, 11, 1, 0.93, 610, 60, _JOB, "vision", xids=((31, 1),)),
    Piece(1, "train-1", "ml", "main", 1, 9.5, 1, 0.9, 590, 58, _JOB, "vision"),
    Piece(0, "notebook-7c9d5f6b4-x2x4z", "lab", "jupyter", 13, 99, 0.5, 0.01, 95, 4, team="nlp"),
    Piece(0, "shell", "lab", "sh", 14, 16, 0.5, None, 80, 1, uid="u-shell-1"),
    Piece(0, "shell", "lab", "sh", 18, 19.5, 0.5, 0.4, 150, 1, uid="u-shell-2"),
    Piece(
        1,
        "serve-5d8c7b9f64-abcde",
        "web",
        "main",
        10,
        99,
        1,
        0.35,
        320,
        30,
        ("Deployment", "serve"),
    ),
)


def _at(hours: float) -> Instant:
    return moved(START, hours * HOUR)


def _gap_seconds(gpu: int, start: float, end: float) -> int:
    """Return the seconds without usage samples on a GPU."""
    return sum(seconds for since, seconds, gpus in _GAPS if gpu in gpus and start <= since < end)


def _container(piece: Piece, hours: float) -> tuple[ContainerUsage, Holding | None]:
    """Return a container's usage up to an hour, and its holding if that has ended."""
    seconds = (min(hours, piece.end) - piece.start) * HOUR
    seconds -= _gap_seconds(piece.gpu, piece.start, min(hours, piece.end))
    held = round(seconds * piece.share * NS)
    busy = None if piece.busy is None else round(seconds * piece.busy * NS)
    energy = round(seconds * piece.watts * 1000)
    end = _at(piece.end) if piece.end <= hours else None
    its_holding = holding(
        piece.pod,
        uuid_of(piece.gpu),
        namespace=piece.namespace,
        container=piece.container,
        uid=piece.info.uid,
        info=piece.info,
        start=_at(piece.start),
        end=end,
        until=_at(hours),
        held=held,
        busy=busy,
        energy=energy,
        gap=_gap_seconds(piece.gpu, piece.start, min(hours, piece.end)) * NS,
        peak=(piece.gib + 2) * GIB,
        mean=piece.gib * GIB,
        busy_peak=None if busy is None else 990_000,
        xids=piece.xids,
    )
    usage = used(
        piece.pod,
        namespace=piece.namespace,
        container=piece.container,
        uid=piece.info.uid,
        start=_at(piece.start),
        ended=end,
        busy=busy,
        held=held,
        energy=energy,
        info=piece.info,
    )
    return (usage, its_holding) if end is not None else (replace(usage, holding=its_holding), None)


def _account(gpu: int, hours: float, usage: list[ContainerUsage]) -> DeviceUsage:
    gap = _gap_seconds(gpu, 0, hours)
    held = sum(one.held_ns for one in usage)
    unheld = round(hours * HOUR * NS) - gap * NS - held
    return account(
        uuid_of(gpu),
        *usage,
        until=_at(hours),
        busy=round(hours) * 20 * NS,
        unheld=unheld,
        energy=round(unheld / NS * _IDLE_WATTS) * 1000,
    )


def _sample_hours() -> Iterator[float]:
    # All hours, and the fractions of an hour at which a holding ends.
    yield from sorted({*range(LAST + 1), *(p.end for p in PIECES if p.end < LAST)})


def write_day(path: Path) -> Path:
    """Write the ledger; podgpu was down once, and no sample of one GPU succeeded for a while."""
    snapshots, ledger = Snapshots(), OpenLedger(path)
    _write_node_name(ledger)
    ended: list[Holding] = []
    for hours in _sample_hours():
        if hours == _RESTART:
            ledger.close()
            ledger = OpenLedger(path, _at(hours))
            continue
        accounts = []
        for gpu in (0, 1):
            usage = [_container(piece, hours) for piece in PIECES if _started_on(piece, gpu, hours)]
            accounts.append(_account(gpu, hours, [one for one, _ in usage]))
            for _, ended_holding in usage:
                if ended_holding is not None and all(
                    ended_holding.start != o.start or ended_holding.subject != o.subject
                    for o in ended
                ):
                    ended.append(replace(ended_holding, serial=len(ended) + 1))
        ledger.accumulator.add_snapshot(snapshots(*accounts, ended=ended))
        ledger.commit()
    ledger.close()
    return path


def _started_on(piece: Piece, gpu: int, hours: float) -> bool:
    return piece.gpu == gpu and piece.start <= hours


def _write_node_name(ledger: OpenLedger) -> None:
    """Write the name of the node, which the sink writes when it creates the file."""
    ledger.rows("INSERT OR REPLACE INTO meta VALUES ('node', 'gpu-node-1')")
