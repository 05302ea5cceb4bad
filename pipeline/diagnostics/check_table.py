"""The table of all checks: data alone, which loads nothing of what the checks need."""

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
"""All checks under the headings of `docs/troubleshooting.md`."""

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {check.id: check for group in GROUPS.values() for check in group}
)

_COLUMNS: Final = ("check", "looks at", "if it isn't well", "what mends it")


def markdown_table(checks: Iterable[Check]) -> Iterable[str]:
    """Yield the lines of a table in `docs/troubleshooting.md`."""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{'---|' * len(_COLUMNS)}"
    for check in checks:
        worst = (
            " or ".join(sorted(verdict.value for verdict in check.possible_verdicts)) or "no fault"
        )
        yield f"| `{check.id}` | {check.subject} | {worst}: {check.consequence} | {check.fix} |"
