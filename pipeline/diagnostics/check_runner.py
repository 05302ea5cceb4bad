"""Runs checks at the same time, each with a time limit. An error stops only its own check."""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, cast

from config.schema import Component, Config
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.component.registry import KINDS, load
from pipeline.diagnostics.context import DoctorContext, in_thread

Found: TypeAlias = Finding | list[Finding]
Work: TypeAlias = Callable[[], Found | Awaitable[Found]]

_HANGS: Final = (
    "something that it reads does not respond: a file server that is unavailable, or a driver "
    "(see dmesg)"
)


@dataclass(frozen=True, slots=True)
class Examination:
    """Checks that run together under one time limit.

    Attributes:
        name: what is examined, for people, such as `source kubelet`.
        work: function that returns the findings; it may block if it is not a coroutine function.
        component: whether the findings concern one component, which `name` names.
        timeout_fix: what the finding gives as the fix if the checks exceed the time limit.
    """

    name: str
    work: Work
    component: bool = False
    timeout_fix: str = _HANGS


def of_components(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return the examinations of all sources and sinks that have checks."""
    return [
        Examination(
            f"{each.role} {each.name}",
            partial(_examine, kind.doctor, each, ctx),
            component=True,
            timeout_fix=kind.timeout_fix or _HANGS,
        )
        for each in (*config.sources.values(), *config.sinks.values())
        if (kind := KINDS[each.role, each.kind]).doctor
    ]


async def _examine(doctor: str, component: Component, ctx: DoctorContext) -> Found:
    # Importing the module imports its libraries too, so do it outside of the event loop.
    examine = cast("Callable[..., Found | Awaitable[Found]]", await asyncio.to_thread(load, doctor))
    return await findings_of(partial(examine, component.options, ctx))


async def run(examinations: Sequence[Examination], deadline: float) -> list[Finding]:
    """Run all examinations at the same time; return all findings, in the order of examinations.

    Args:
        examinations: what to run.
        deadline: time limit for each examination, in seconds.
    """
    found = await asyncio.gather(*(_one(each, deadline) for each in examinations))
    return [finding for findings in found for finding in findings]


async def _one(examination: Examination, deadline: float) -> list[Finding]:
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            findings = await findings_of(examination.work)
    except Exception as error:  # noqa: BLE001 - a bug in one check must not stop the others
        if isinstance(error, TimeoutError) and limit.expired():
            findings = [timed_out(examination.name, deadline, examination.timeout_fix)]
        else:
            findings = [_bug(examination.name, error)]
    if not examination.component:
        return findings
    return [replace(finding, component=examination.name) for finding in findings]


async def findings_of(work: Work) -> list[Finding]:
    """Return the findings of a coroutine function, or of a function that a thread runs."""
    if inspect.iscoroutinefunction(work):
        found = await work()
    else:
        found = await in_thread(cast("Callable[[], Found]", work))
    return found if isinstance(found, list) else [found]


def timed_out(name: str, seconds: float, fix: str) -> Finding:
    """Return a failure for checks that exceeded their time limit."""
    return Check("check.deadline", FAILS).failure(name, f"no result within {seconds:g} s", fix)


def _bug(name: str, error: Exception) -> Finding:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    fix = "report this bug with the whole line; the result of the check is unknown"
    return Check("check.bug", FAILS).failure(
        name, f"{type(error).__name__}: {error} ({where})", fix
    )
