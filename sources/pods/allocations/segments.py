"""The text that HAMi came up with and volcano took over.

Each device of a container is `UUID,TYPE,MEMORY,CORES` and a colon; containers have semicolons
between or after them, and one without devices leaves its place empty.
"""

from collections.abc import Callable, Iterator, Sequence

from pipeline.allocations.reading import Held, MalformedError, gathered, percent, uuid, whole
from pipeline.model import RawDeviceId

Place = tuple[int, int]
"""Number of a container in the text, and of a device of it."""

Instead = Callable[[Place], RawDeviceId | None]


def split(value: str, counts: Sequence[int], *, between: bool = False) -> list[str]:
    """Return the containers' parts.

    Args:
        value: the text.
        counts: how many parts there may be.
        between: semicolons stand between containers, rather than after each.

    Raises:
        MalformedError: it has another number of parts.
    """
    parts = value.split(";")
    ended = parts[:-1] if not parts[-1].strip() else parts
    for candidate in (parts, ended) if between else (ended,):
        if len(candidate) in counts:
            return candidate
    expected = " or ".join(str(count) for count in dict.fromkeys(counts))
    raise MalformedError(f"expected {expected} containers, found {len(ended)}")


def held(parts: Sequence[str], names: Sequence[str], instead: Instead) -> Iterator[Held]:
    """Yield what containers hold.

    Args:
        parts: of the text, one for each container.
        names: the containers.
        instead: the device that is really held at a place, None for the one in the text.

    Raises:
        MalformedError: a part can't be read.
    """
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        yield from gathered(_devices(part, number, instead), name)


def _devices(
    part: str, number: int, instead: Instead
) -> Iterator[tuple[RawDeviceId, float | None]]:
    texts = [text for text in part.split(":") if text.strip()]
    for index, text in enumerate(texts):
        place = f"container {number}, device {index}: "
        fields = [field.strip() for field in text.split(",")]
        if len(fields) < 4:
            raise MalformedError(f"{place}expected UUID,TYPE,MEMORY,CORES")
        # Some releases tell the slot of a MIG layout behind the GPU's uuid.
        gpu = uuid(fields[0].partition("[")[0], place)
        whole(fields[2], f"{place}memory: ")
        # No cores are asked for: not none of them, but as many as are free.
        share = percent(whole(fields[3], f"{place}cores: "))
        yield instead((number, index)) or gpu, share
