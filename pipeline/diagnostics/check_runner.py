"""Runs checks: each within its time, and none at the cost of another."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast

import msgspec

from config.schema import Component, Config
from pipeline.component.findings import Finding
from pipeline.component.registry import ENTRIES, load
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext

Examine: TypeAlias = Callable[[msgspec.Struct, DoctorContext], Awaitable[list[Finding]]]
"""What an `Entry.doctor` names: looks after one component, given its options."""

_HANGS: Final = (
    "something that it looks at hangs: a file server that is away, or a driver (see dmesg)"
)


@dataclass(frozen=True, slots=True)
class Examination:
    """Some checks that go together.

    Attributes:
        name: whom they concern, for people: `source kubelet`, or what they look at.
        work: makes the findings.
        component: the checks concern that component alone.
        late: what to do if they don't come to an end.
    """

    name: str
    work: Callable[[], Awaitable[list[Finding]]]
    component: bool = False
    late: str = _HANGS


def of_components(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return the examinations of all sources and sinks that have something to look at."""
    return [
        _of(component, ctx)
        for component in (*config.sources.values(), *config.sinks.values())
        if ENTRIES[component.role, component.kind].doctor
    ]


def _of(component: Component, ctx: DoctorContext) -> Examination:
    entry = ENTRIES[component.role, component.kind]

    async def work() -> list[Finding]:
        # What a module needs is loaded with it, off the event loop.
        examine = cast("Examine", await asyncio.to_thread(load, entry.doctor))
        return await examine(component.options, ctx)

    name = f"{component.role} {component.name}"
    return Examination(name, work, component=True, late=entry.timeout_fix or _HANGS)


async def run(examinations: Sequence[Examination], deadline: float) -> list[Finding]:
    """Run all at the same time; return their findings in the order of the examinations.

    Args:
        examinations: what is run.
        deadline: seconds for each.
    """
    found = await asyncio.gather(*(_one(each, deadline) for each in examinations))
    return [finding for findings in found for finding in findings]


async def _one(examination: Examination, deadline: float) -> list[Finding]:
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            findings = await examination.work()
    except Exception as error:  # noqa: BLE001 - one check's bug costs the others nothing
        if isinstance(error, TimeoutError) and limit.expired():
            findings = [late(examination.name, deadline, examination.late)]
        else:
            findings = [_bug(examination.name, error)]
    if not examination.component:
        return findings
    return [replace(finding, component=examination.name) for finding in findings]


def late(name: str, seconds: float, fix: str) -> Finding:
    """Return the finding that checks have not come to an end."""
    return CHECKS["check.deadline"].failure(
        name,
        f"no answer within {seconds:g} s",
        fix,
    )


def _bug(name: str, error: Exception) -> Finding:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    return CHECKS["check.bug"].failure(
        name,
        f"{type(error).__name__}: {error} ({where})",
        "report this with the whole line; what the check looks at is not known",
    )
