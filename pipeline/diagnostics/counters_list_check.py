"""Check `counters`: whether the counters list can be read, and how many fields it selects."""

import asyncio
import os
from contextlib import suppress
from typing import Final

from config.schema import Counters
from pipeline.base.errors import ApiError, TransientError
from pipeline.component.findings import BOTH, Check, Finding
from pipeline.counters.list_source import ListUnavailableError, origin_of
from pipeline.counters.plan_builder import default_plan, planned
from pipeline.diagnostics.api_permissions import FORBIDDEN, NOT_FOUND, fix_for
from pipeline.diagnostics.context import DoctorContext
from pipeline.fields import FieldPlan

_SECTION: Final = "counters"
_MAX_LISTED: Final = 3
_LIST: Final = "give the path of a list such as default-counters.csv"
_FILE_FIXES: Final = (
    (
        "permission denied",
        f"the file exists, but uid {os.geteuid()} may not read it: run podgpu as root",
    ),
    ("no such file", "mount the folder of the file"),
    ("was replaced", "mount the folder of the file instead of the file"),
)


async def examine(setting: Counters, ctx: DoctorContext) -> list[Finding]:
    """Run the check `counters`."""
    check = Check("counters", BOTH)
    origin = origin_of(setting, ctx.kube)
    if origin is None:
        return [check.ok(_SECTION, "no list is set: podgpu reads its default fields")]
    try:
        reading = await asyncio.to_thread(planned, await origin.read(), setting)
    except ListUnavailableError as error:
        report = check.failure if origin.vital else check.warning
        return [report(origin.place, str(error), _fix_for(setting, error))]
    if reading.plan is None:
        fix = "write rows as in default-counters.csv: field, type, help"
        return [check.failure(origin.place, "the list has no usable row", fix)]
    if reading.complaints:
        problems = "; ".join(str(each) for each in reading.complaints[:_MAX_LISTED])
        observed = f"{len(reading.complaints)} rows are ignored: {problems}"
        return [check.warning(origin.place, observed, "fix or remove these rows")]
    return [check.ok(origin.place, f"{len(reading.plan.fields)} fields")]


def _fix_for(setting: Counters, error: ListUnavailableError) -> str:
    if not setting.configmap:
        return next((fix for text, fix in _FILE_FIXES if text in str(error)), _LIST)
    namespace, _, name = setting.configmap.partition(":")
    cause = error.__cause__
    if isinstance(cause, ApiError) and cause.status in {FORBIDDEN, NOT_FOUND}:
        return (
            f"give the service account a Role in {namespace} with verbs [get] on configmaps, "
            f'resourceNames ["{name}"], or create that ConfigMap'
        )
    if isinstance(cause, TransientError):
        return fix_for(cause)
    return "check that the API server responds, and that the ConfigMap has the list as key metrics"


async def requested_plan(ctx: DoctorContext) -> FieldPlan:
    """Return the field plan of the counters list; the default plan if no list can be used."""
    setting, plan = ctx.config.counters, None
    if (origin := origin_of(setting, ctx.kube)) is not None:
        with suppress(ListUnavailableError):
            plan = (await asyncio.to_thread(planned, await origin.read(), setting)).plan
    return default_plan(setting) if plan is None else plan
