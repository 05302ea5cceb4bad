"""A ledger of a day, written as podgpu writes it: hour by hour, with two gaps and a restart."""

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
"""The hour, behind the beginning, of the last look."""

_IDLE_WATTS: Final = 70
_RESTART: Final = 12
_LOST: Final = ((11.0, 180, (0, 1)), (14.0, 600, (0,)))
"""From which hour on, for how many seconds and of which cards nothing was counted."""


@dataclass(frozen=True)
class Piece:
    """A container's time on a card: hours from the beginning, part, busy part, power."""

    card: int
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


def _lost(card: int, start: float, end: float) -> int:
    """Seconds between two looks of which there is no account."""
    return sum(seconds for since, seconds, cards in _LOST if card in cards and start <= since < end)


def _container(piece: Piece, hours: float) -> tuple[ContainerUsage, Holding | None]:
    """What a container had by an hour; its holding, if that has ended."""
    seconds = (min(hours, piece.end) - piece.start) * HOUR
    seconds -= _lost(piece.card, piece.start, min(hours, piece.end))
    held = round(seconds * piece.share * NS)
    busy = None if piece.busy is None else round(seconds * piece.busy * NS)
    energy = round(seconds * piece.watts * 1000)
    over = _at(piece.end) if piece.end <= hours else None
    one = holding(
        piece.pod,
        uuid_of(piece.card),
        namespace=piece.namespace,
        container=piece.container,
        uid=piece.info.uid,
        info=piece.info,
        start=_at(piece.start),
        end=over,
        until=_at(hours),
        held=held,
        busy=busy,
        energy=energy,
        gap=_lost(piece.card, piece.start, min(hours, piece.end)) * NS,
        peak=(piece.gib + 2) * GIB,
        mean=piece.gib * GIB,
        busy_peak=None if busy is None else 990_000,
        xids=piece.xids,
    )
    had = used(
        piece.pod,
        namespace=piece.namespace,
        container=piece.container,
        uid=piece.info.uid,
        start=_at(piece.start),
        ended=over,
        busy=busy,
        held=held,
        energy=energy,
        info=piece.info,
    )
    return (had, one) if over is not None else (replace(had, holding=one), None)


def _account(card: int, hours: float, had: list[ContainerUsage]) -> DeviceUsage:
    lost = _lost(card, 0, hours)
    held = sum(one.held_ns for one in had)
    unheld = round(hours * HOUR * NS) - lost * NS - held
    return account(
        uuid_of(card),
        *had,
        until=_at(hours),
        busy=round(hours) * 20 * NS,
        unheld=unheld,
        energy=round(unheld / NS * _IDLE_WATTS) * 1000,
    )


def _looks() -> Iterator[float]:
    # The quarter hours too, at which something begins or ends.
    yield from sorted({*range(LAST + 1), *(p.end for p in PIECES if p.end < LAST)})


def write_day(path: Path) -> Path:
    """Write the ledger; podgpu was down once, and one card couldn't be looked at for a while."""
    show, kept = Snapshots(), OpenLedger(path)
    _name(kept)
    ended: list[Holding] = []
    for hours in _looks():
        if hours == _RESTART:
            kept.close()
            kept = OpenLedger(path, _at(hours))
            continue
        accounts = []
        for card in (0, 1):
            had = [_container(piece, hours) for piece in PIECES if _on(piece, card, hours)]
            accounts.append(_account(card, hours, [one for one, _ in had]))
            for _, over in had:
                if over is not None and all(
                    over.start != o.start or over.subject != o.subject for o in ended
                ):
                    ended.append(replace(over, serial=len(ended) + 1))
        kept.accumulator.add_snapshot(show(*accounts, ended=ended))
        kept.commit()
    kept.close()
    return path


def _on(piece: Piece, card: int, hours: float) -> bool:
    return piece.card == card and piece.start <= hours


def _name(kept: OpenLedger) -> None:
    """The sink writes it with the file."""
    kept.rows("INSERT OR REPLACE INTO meta VALUES ('node', 'gpu-node-1')")
