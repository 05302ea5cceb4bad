"""What a row of the table of devices has, before it is drawn. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from podgpu.cli.top.styled_text import EMPTY, Line, Style


class Cell(Enum):
    """What a cell of a row shows. `*_GRAPH` are the cells of graphs."""

    NAME = auto()
    USE_GRAPH = auto()
    USE = auto()
    MEMORY_GRAPH = auto()
    MEMORY = auto()
    POWER_GRAPH = auto()
    POWER = auto()
    TEMPERATURE = auto()
    ENERGY = auto()
    SHARE = auto()
    HELD = auto()


class Kind(Enum):
    """What a row is about."""

    GPU = auto()
    INSTANCE = auto()
    CONTAINER = auto()
    PROCESS = auto()
    NOTE = auto()


@dataclass(frozen=True, slots=True)
class Graph:
    """Values of the last hour as fractions from 0 to 1, the oldest first; None is unknown."""

    values: Sequence[float | None]
    style: Style

    @property
    def is_known(self) -> bool:
        """Whether any value is known."""
        return any(each is not None for each in self.values)


@dataclass(frozen=True, slots=True)
class Row:
    """A row about a device, a container or a process; or a note.

    Attributes:
        kind: what the row is about.
        depth: 0 for a GPU, 1 for what is below a GPU, 2 for what is below an instance.
        lead: what is before the name of a pod: the MIG instance that it holds alone.
        name: the name: never cut if there is room for it.
        detail: what may be cut first: the model of a GPU, the container of a pod.
        remark: words about the state, such as `free`; the whole text of a note.
        cells: text of the cells by what they show.
        graphs: graphs by their cell.
        whole: whether a name for which there is no room is repeated below in full.
    """

    kind: Kind
    depth: int
    name: str = ""
    lead: str = field(default="", kw_only=True)
    detail: str = ""
    remark: Line = EMPTY
    cells: Mapping[Cell, Line] = field(default_factory=dict)
    graphs: Mapping[Cell, Graph] = field(default_factory=dict)
    whole: bool = False

    @property
    def full_name(self) -> str:
        """The whole name, with the container."""
        return f"{self.name} {self.detail}".strip()
