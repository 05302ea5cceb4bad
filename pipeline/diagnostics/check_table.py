"""The table of all checks. It is data only: importing it imports none of the checks."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pipeline.component.check import Check
from pipeline.diagnostics.tables import cluster, node, sinks, sources

GROUPS: Final[Mapping[str, tuple[Check, ...]]] = MappingProxyType(
    {
        "The node": node.CHECKS,
        "Sources": sources.CHECKS,
        "Sinks": sinks.CHECKS,
        "The cluster": cluster.CHECKS,
    }
)
"""All checks, by their heading in `docs/troubleshooting.md`."""

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {check.id: check for group in GROUPS.values() for check in group}
)

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
