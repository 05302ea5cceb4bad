"""All checks, as `docs/troubleshooting.md` lists them: of the doctor and of all components."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from pipeline.component.check import Check
from pipeline.component.kind import Role
from pipeline.component.registry import KINDS, load
from pipeline.diagnostics import shared_checks
from podgpu.doctor import checks
from podgpu.doctor.cluster import checks as cluster_checks


def _of_kinds(role: Role) -> tuple[Check, ...]:
    paths = [kind.checks for (of, _), kind in KINDS.items() if of == role and kind.checks]
    tables = [cast("Mapping[str, Check]", load(path)) for path in paths]
    return tuple(check for table in tables for check in table.values())


_SHARED: Final = tuple(each for each in vars(shared_checks).values() if isinstance(each, Check))

GROUPS: Final[Mapping[str, tuple[Check, ...]]] = {
    "The node": (*checks.CHECKS.values(), *_SHARED),
    "Sources": _of_kinds("source"),
    "Sinks": _of_kinds("sink"),
    "The cluster": tuple(cluster_checks.CHECKS.values()),
}
"""All checks, by their heading."""

CHECKS: Final[Mapping[str, Check]] = {
    check.id: check for group in GROUPS.values() for check in group
}

_COLUMNS: Final = ("check", "what it examines", "possible problem", "fix")


def markdown_table(checks: Iterable[Check]) -> Iterable[str]:
    """Yield the lines of a table in `docs/troubleshooting.md`."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{'---|' * len(_COLUMNS)}"
    for check in checks:
        worst = (
            " or ".join(sorted(verdict.value for verdict in check.possible_verdicts))
            or "information"
        )
        yield f"| `{check.id}` | {check.subject} | {worst}: {check.consequence} | {check.fix} |"
